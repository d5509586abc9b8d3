"""Processes in which user code runs on behalf of the doctor: the target is loaded there, and probes are forked."""
