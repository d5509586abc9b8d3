"""What the tuner's probes measure with: loaders that never end, a consumer, and counters."""
