"""Predicts what other workers, windows and machines would change, by replaying a record."""
