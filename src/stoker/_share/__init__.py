"""One copy of the data for all workers."""
