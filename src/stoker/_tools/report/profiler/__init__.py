"""Judges traces of torch.profiler: reads them as a stream, and finds how long devices waited for data.

reading (files) → timeline (columns) → analysis (one rank) → ranks (all of them) → verdict, with its advice → screen
"""
