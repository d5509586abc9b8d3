"""``stoker top``: shows the loaders that run on this machine, and what they do now."""
