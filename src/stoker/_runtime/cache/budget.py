"""Reads a budget and bounds it by the memory of this machine, its cgroups included."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from stoker._host.memory_available import Gauge, MemoryAvailable
from stoker.argument_numbers import parse_bytes
from stoker.errors import CacheRefused

_log = logging.getLogger("stoker")
DEFAULT = "8GiB"
_SHARE = 0.75
"""The share of the available memory that a budget may take."""


def of_memory(budget: int | str, *, room: MemoryAvailable | None = None) -> int:
    """Return the bytes that a cache in memory may take. Raises CacheRefused for more than the machine has.

    A budget above three quarters of what is available now is cut to that, with a warning.
    """
    wanted = parse_bytes(budget, "budget")
    available, total = Gauge().read() if room is None else room
    if available is None or total is None:
        return wanted
    most = int(available * _SHARE)
    if wanted <= most:
        return wanted
    if wanted > total and budget != DEFAULT:
        raise CacheRefused(
            f"a budget of {in_words(wanted)} is above the memory of this machine or container, {in_words(total)}, of which "
            f"{in_words(available)} are available. Give a smaller budget, or a folder on a local disk: path="
        )
    _log.warning(
        "the cache's budget of %s is cut to %s: three quarters of the %s that are available",
        in_words(wanted), in_words(most), in_words(available),
    )  # fmt: skip
    return most


def of_disk(budget: int | str, folder: str | os.PathLike[str]) -> int:
    """Return the bytes that a cache on a disk may take; a warning says when the disk has less."""
    wanted = parse_bytes(budget, "budget")
    place = Path(folder)
    while not place.exists() and place != place.parent:
        place = place.parent
    free = shutil.disk_usage(place).free
    if wanted > free:
        _log.warning(
            "the cache's budget is %s, and the disk of %s has %s free: the cache stops growing when it is full",
            in_words(wanted), folder, in_words(free),
        )  # fmt: skip
    return wanted


def in_words(nbytes: int) -> str:
    """A size with its unit, for people."""
    for unit, scale in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if nbytes >= 1 << scale:
            return f"{nbytes / (1 << scale):.3g} {unit}"
    return f"{nbytes} bytes"
