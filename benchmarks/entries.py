"""What an entry of the table is: a duel or a cost, what its clock runs over and which figures it must reach.

Importing this module is cheap: torch and the datasets are imported by the functions an entry names, in the round's process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

Arguments = dict[str, Any]
"""Constructor arguments, the same for both loaders; the round adds ``num_workers``."""


class Kind(Enum):
    """What the clock runs over."""

    STEADY = "wall per batch, warm, in the middle of a long epoch"
    EPOCH = "wall per batch over one whole epoch, workers' start included"
    FIRST = "iter() to the first batch, workers' start included"
    GAP = "last batch of an epoch to the first of the next, persistent workers"
    MEMORY = "memory of the workers over one epoch, read from the kernel"
    NARROW = "wall per batch with a /dev/shm of 16 MB, against the same with the machine's"
    MICRO = "a function's own cost"


class Metric(Enum):
    """What a required figure is about: its name in the table, its unit, and whether smaller is better."""

    WALL = ("wall", "x", False)
    CPU = ("parent CPU", "x", False)
    EFFICIENCY = ("efficiency", "", False)
    MICRO = ("cost", " µs", True)
    ADDED = ("memory added", " MiB", True, "added_mib")
    BEYOND = ("beyond empty", "", True, "beyond_share")
    PACKED = ("size", "", True, "packed_share")
    SPEED = ("speed", "", False, "speed")
    OVERHEAD = ("CPU added", " %", True)

    def __init__(self, label: str, unit: str, at_most: bool, fact: str = "") -> None:
        self.label = label
        self.unit = unit
        self.at_most = at_most
        self.fact = fact
        """The name of the fact that a side measures about itself; empty when the figure is a ratio of times."""


@dataclass(frozen=True)
class Effort:
    """How much one round measures."""

    seconds: float
    warm_seconds: float
    epoch_batches: int
    least_batches_cap: int
    rounds: int


# 61 batches of 16 hold exactly 16 of the slow samples, so a multiple of 61 has no cut-off cycle.
FULL = Effort(seconds=1.5, warm_seconds=0.25, epoch_batches=61, least_batches_cap=1000, rounds=5)
QUICK = Effort(seconds=0.3, warm_seconds=0.1, epoch_batches=31, least_batches_cap=8, rounds=2)


@dataclass(frozen=True)
class Figure:
    """A bound from an issue: a ratio, a share or a speed to reach, or a cost, a size or a share not to exceed."""

    metric: Metric
    bound: float

    @property
    def at_most(self) -> bool:
        """Whether smaller is better."""
        return self.metric.at_most

    def met(self, value: float) -> bool:
        """Tell whether ``value`` satisfies the bound."""
        return value <= self.bound if self.at_most else value >= self.bound


def _as_it_is(arguments: Arguments) -> Arguments:
    return arguments


@dataclass(frozen=True)
class Case:
    """One duel between two loaders built from the same arguments."""

    name: str
    describe: str
    kind: Kind
    build: Callable[[Effort], Arguments]
    figures: tuple[Figure, ...]
    workers: int = 2
    least_batches: int = 20
    most_rounds: int | None = None
    """Fewer rounds than asked for, where one takes long."""
    quick: bool = True
    """Whether a quick run has it, too."""
    ours: Callable[[Arguments], Arguments] = _as_it_is
    """What a user of stoker does to the arguments first, such as ``stoker.share``."""

    @property
    def needs_inline(self) -> bool:
        """Whether a round also measures ``num_workers=0``, alone and side by side."""
        return any(figure.metric is Metric.EFFICIENCY for figure in self.figures)


@dataclass(frozen=True)
class Micro:
    """A cost without a rival: ``run`` returns it in the unit of ``metric``, and it has to stay at or below ``bound``."""

    name: str
    describe: str
    run: Callable[[], float]
    bound: float
    metric: Metric = Metric.MICRO
    kind: Kind = Kind.MICRO
    most_rounds: int | None = None
    quick: bool = True

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The bound in the form the table reads."""
        return (Figure(self.metric, self.bound),)
