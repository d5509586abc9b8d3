"""Figures of running loaders for other systems, through their own client libraries (extras)."""
