"""Pickles the dataset once for other processes, and names what cannot be pickled."""
