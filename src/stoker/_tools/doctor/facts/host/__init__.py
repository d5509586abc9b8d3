"""Facts of the machine, and of a Ray cluster, that hold for every dataset."""
