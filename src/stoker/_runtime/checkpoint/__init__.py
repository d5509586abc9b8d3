"""The state of a loader: what ``state_dict`` tells, and how an epoch starts from it."""
