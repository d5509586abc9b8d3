"""The tuner: finds the best setting for a loader, and says why."""
