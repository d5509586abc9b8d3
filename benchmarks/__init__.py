"""torch's DataLoader against stoker's, as ratios inside one run: ``python -m benchmarks --list``."""
