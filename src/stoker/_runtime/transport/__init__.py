"""Moves a batch from a worker to the parent, through slots of one shared arena."""
