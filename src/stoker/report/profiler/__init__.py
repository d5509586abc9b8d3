"""Traces of torch.profiler that people already have: read as a stream, and judged for how long devices waited for data."""
