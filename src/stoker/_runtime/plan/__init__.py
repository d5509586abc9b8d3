"""Plans which samples are made, and in which order."""
