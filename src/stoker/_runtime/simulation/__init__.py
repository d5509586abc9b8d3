"""Runs of a loader that did not happen, computed from measured batch times. Pure: numbers in, numbers out."""
