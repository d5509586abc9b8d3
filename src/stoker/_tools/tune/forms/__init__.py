"""The forms in which a tuning is shown."""
