"""Measuring: scripts that are run under observation, and torch's own loader."""
