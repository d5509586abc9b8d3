"""Judges a run record: the verdict, its reasons, and what to change."""
