"""Runs scripts under observation, and measures torch's own loader."""
