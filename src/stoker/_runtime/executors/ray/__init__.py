"""Runs workers on the nodes of a Ray cluster. Imported only when asked for: the rest of stoker does without Ray."""
