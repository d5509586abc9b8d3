"""Measures torch's own DataLoader in a running script, without changing what it does."""
