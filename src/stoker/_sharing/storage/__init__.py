"""Stores the items of shared containers in a segment, and reads one of them back."""
