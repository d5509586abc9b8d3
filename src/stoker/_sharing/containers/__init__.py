"""Shared containers: they read like the originals, over memory of one segment."""
