"""``stoker top``: which loaders run on this machine, and what they do now."""
