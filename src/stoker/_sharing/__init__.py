"""``stoker.share``: one copy of the data for all workers."""
