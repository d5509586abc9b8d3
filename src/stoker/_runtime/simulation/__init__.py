"""Simulated runs of a loader, computed from measured batch times. Pure: numbers in, numbers out."""
