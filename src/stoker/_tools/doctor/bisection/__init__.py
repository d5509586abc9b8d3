"""Narrows an unknown failure down by trials."""
