"""A block, as the probe tells it: the race, which is pure, reckons with the same one."""

from stoker._core.tuning.block import Block

__all__ = ["Block"]
