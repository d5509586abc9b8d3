"""Saves and restores where a loader is: ``state_dict``, and the start of an epoch from it."""
