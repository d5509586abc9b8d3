"""Reads the text of the user's own files. Nothing of it runs."""
