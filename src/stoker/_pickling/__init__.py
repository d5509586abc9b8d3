"""The dataset's way to other processes: pickled once, and what cannot be pickled named by its path."""
