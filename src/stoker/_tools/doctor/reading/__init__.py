"""Reads logs and tracebacks as users have them: cleans them, and searches them for marks and clues."""
