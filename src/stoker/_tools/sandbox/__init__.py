"""The only place where tools run user code: in child processes, under limits of time and memory."""
