"""The code that makes samples: it runs in a worker process, in a worker thread, or in the parent."""
