"""Logs and tracebacks as somebody has them: made plain, searched for marks and clues."""
