"""Processes in which user code runs on behalf of the doctor and the tuner: the target is loaded there, and probed."""
