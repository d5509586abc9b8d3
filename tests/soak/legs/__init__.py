"""The legs of the soak: one file and one entry each.

A leg's module has ``play(seed) -> Account``. If it needs something that a machine may not have, it also has ``unable() -> str``,
which says what is missing, or nothing.
"""

from __future__ import annotations

from typing import NamedTuple


class Leg(NamedTuple):
    """One kind of scenario: its share of the time, how long one takes, and after how long it is taken for hung."""

    share: float
    takes_s: float
    patience_s: float
    about: str

    def module(self, name: str) -> str:
        """Where its ``play`` is."""
        return f"tests.soak.legs.{name}"


LEGS = {
    "workers": Leg(5, 5, 120, "signals, stops, dying and bad rows, early ends; processes, threads, inline"),
    "interrupts": Leg(10, 10, 240, "Ctrl-C between two bytecodes of the engine, at every place in turn"),
    "forgotten": Leg(
        3,
        10,
        240,
        "half-read iterators are collected between two bytecodes of the engine, at every place in turn",
    ),
    "starts": Leg(
        3, 20, 240, "Ctrl-C at any moment while workers start, run and end: fork, forkserver, spawn"
    ),
    "samples": Leg(
        2, 2, 90, "rows that raise, rows of None, samplers, collate functions that raise; hundreds a second"
    ),
    "refusals": Leg(
        2,
        5,
        90,
        "no descriptor left, no address space, no file of that size, no space on the disk or in /dev/shm",
    ),
    "clocks": Leg(1, 3, 90, "the clock on the wall jumps by hours, forth and back"),
    "resumes": Leg(
        2, 5, 120, "epochs in legs, each with other workers, executor or start method, and killed workers"
    ),
    "cache": Leg(2, 5, 120, "workers that fill a cache are killed: in memory, on a disk, shared by name"),
    "memory": Leg(1, 10, 120, "the kernel kills workers that need more than their cgroup has"),
    "device": Leg(2, 30, 300, "batches on the fake accelerator: kills, forks, early ends, refused memory"),
    "frameworks": Leg(1, 60, 300, "`stoker run` with Lightning and Accelerate, whose workers are killed"),
    "ray": Leg(1, 100, 400, "nodes of a Ray cluster are killed, or cut off the network"),
}
"""By name."""


def chosen(names: str | None) -> list[str]:
    """The legs of a list with commas; all without one. Raises ValueError for names that are none."""
    if names is None:
        return list(LEGS)
    found = names.split(",")
    if unknown := [name for name in found if name not in LEGS]:
        raise ValueError(f"no leg is called {', '.join(unknown)}: there are {', '.join(LEGS)}")
    return found
