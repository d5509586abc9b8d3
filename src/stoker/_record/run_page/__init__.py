"""The run page: a few words of shared memory that `stoker top` reads while a loader runs."""
