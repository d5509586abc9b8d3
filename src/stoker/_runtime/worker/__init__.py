"""What runs where samples are made: in a worker process, in a worker thread, or in the parent."""
