"""Runs user code for the tools, and is the only place that does: in child processes, under limits of time and memory."""
