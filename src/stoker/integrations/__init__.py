"""Helps frameworks to keep stoker's loaders. Each module imports its framework when it is imported, and nothing before."""
