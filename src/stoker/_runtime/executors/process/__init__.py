"""Worker processes: starting them, sending tasks, reading results, and reporting how they died."""
