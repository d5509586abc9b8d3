"""A block, as the probe tells it: the race, which is pure, reckons with the same one."""

from stoker._tools.tune.model.block import Block

__all__ = ["Block"]
