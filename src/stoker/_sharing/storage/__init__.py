"""How the items of shared containers lie in a segment, and how one of them is read."""
