"""The sample cache: one store of samples for all workers, threads, local ranks and epochs of a machine."""
