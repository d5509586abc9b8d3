"""``stoker doctor --device``: tries the way to a device on the hardware at hand."""
