"""Moves batches to the accelerator, and measures when it is idle."""
