"""Finds the cause of a run's waits."""
