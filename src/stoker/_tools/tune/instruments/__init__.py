"""The measuring tools of the tuner's probes: endless loaders, the training step, and counters."""
