"""Everything that runs where samples are made: in a worker process, in a worker thread, or inline in the parent."""
