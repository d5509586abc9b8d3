"""Forms in which a tuning is shown."""
