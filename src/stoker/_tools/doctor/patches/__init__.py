"""Edits source text and leaves every other byte as it is. Pure: text in, text out."""
