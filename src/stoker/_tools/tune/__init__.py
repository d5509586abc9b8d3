"""The tuner: which setting a loader should have, and why."""
