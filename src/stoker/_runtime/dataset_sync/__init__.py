"""Brings changed attributes of the dataset to running workers: ``sender`` in the parent, ``receiver`` in the worker."""
