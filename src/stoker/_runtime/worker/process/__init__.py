"""A worker process from its first line to its last: entry, set-up, template, main loop."""
