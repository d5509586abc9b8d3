"""Readings for a record: the machine, memory over time, and the workers as processes. No torch."""
