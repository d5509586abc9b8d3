"""A run record as a trace for Perfetto."""
