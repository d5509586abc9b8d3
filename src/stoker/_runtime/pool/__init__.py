"""Owns the workers and the shared memory of a loader: starts them, opens their batches, and lets both go."""
