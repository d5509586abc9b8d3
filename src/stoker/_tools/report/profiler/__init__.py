"""Traces of torch.profiler that people already have: read as a stream, and judged for how long devices waited for data.

reading (files) → timeline (columns) → analysis (one rank) → ranks (all of them) → verdict, with its advice → screen
"""
