"""Predicts what a sample cache would gain, from measured times and sizes, before anybody spends memory on it. Pure.

A sample costs a worker ``sample_ns``. A cache keeps a part of that work and gives its value back in ``hit_ns``. From the second
epoch on, a sample costs ``sample_ns - saved_ns``. The first epoch fills the cache and gains nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from stoker._record.finding import duration, size
from stoker._runtime.simulation.work import Work

LOOK_UP_NS = 15_000
"""A hit beyond copying its bytes."""
COPY_BYTES_PER_S = 3e9
"""The speed of one core's copies where it was not measured."""

_ENTRY_BYTES = 256
_SLACK = 1.02
"""An entry's own header and place, and samples that are larger than those seen."""
_ROOM = 0.75
"""Share of the available memory that a cache may take: batches and the training need some too."""
_LEAST_SAVED = 0.1
"""A cache that saves a smaller share of a sample's work is not worth a line."""
_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20))


@dataclass(frozen=True, slots=True)
class CacheWay:
    """One way to cache. ``part_ns`` is the work that a hit saves, ``part_bytes`` what is kept of a sample.

    ``edit`` is the line to type, with ``{budget}`` in it. ``what`` names what is kept, in the plural.
    """

    edit: str
    part_ns: float
    part_bytes: float
    what: str = "samples"


@dataclass(frozen=True, slots=True)
class CacheCase:
    """What is known of a dataset's samples and of the memory for them. None: not known."""

    samples: int | None
    """Of the whole dataset: all ranks of a machine use one store."""
    sample_ns: float
    """A worker's time to fetch one."""
    epochs: int | None
    room_bytes: int | None
    copy_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class CacheForecast:
    """The best way to cache, and what it would save."""

    edit: str
    """The line to type, with its budget."""
    what: str
    samples: int
    sample_ns: float
    saved_ns: float
    """Per sample, from the second epoch on."""
    hit_ns: float
    budget_bytes: int
    room_bytes: int

    @property
    def left_ns(self) -> float:
        """A sample's cost with the cache."""
        return max(0.0, self.sample_ns - self.saved_ns)

    @property
    def text(self) -> str:
        """The numbers in a sentence without its full stop."""
        return (
            f"a cache of {size(self.budget_bytes)} holds all {self.samples:,} {self.what} (of {size(self.room_bytes)} available): "
            f"from the second epoch on a sample costs a worker {duration(self.left_ns / 1e9)} instead of "
            f"{duration(self.sample_ns / 1e9)}"
        )


def forecast(facts: CacheCase, ways: Iterable[CacheWay]) -> CacheForecast | None:
    """The way that saves most. None where a cache gains nothing or does not fit, where there is one epoch, or facts are missing."""
    if not facts.samples or facts.room_bytes is None or facts.sample_ns <= 0:
        return None
    if facts.epochs is not None and facts.epochs < 2:
        return None
    found = [_of(facts, facts.samples, facts.room_bytes, way) for way in ways]
    good = [each for each in found if each.saved_ns >= _LEAST_SAVED * facts.sample_ns and _fits(each)]
    return max(good, key=lambda each: each.saved_ns, default=None)


def _of(facts: CacheCase, samples: int, room_bytes: int, way: CacheWay) -> CacheForecast:
    hit_ns = LOOK_UP_NS + way.part_bytes / (facts.copy_bytes_per_s or COPY_BYTES_PER_S) * 1e9
    budget_bytes = samples * (way.part_bytes * _SLACK + _ENTRY_BYTES)
    text, budget_bytes = _budget(budget_bytes)
    return CacheForecast(
        edit=way.edit.format(budget=text),
        what=way.what,
        samples=samples,
        sample_ns=facts.sample_ns,
        saved_ns=min(way.part_ns, facts.sample_ns) - hit_ns,
        hit_ns=hit_ns,
        budget_bytes=budget_bytes,
        room_bytes=room_bytes,
    )


def _fits(found: CacheForecast) -> bool:
    return found.budget_bytes <= _ROOM * found.room_bytes


def _budget(nbytes: float) -> tuple[str, int]:
    """Rounded up, as one types it, and in bytes."""
    name, unit = next((each for each in _UNITS if nbytes >= each[1]), _UNITS[-1])
    amount = max(1.0, math.ceil(10 * nbytes / unit) / 10 if nbytes < 10 * unit else math.ceil(nbytes / unit))
    return f"{amount:g}{name}", math.ceil(amount * unit)


def cached_work(work: Work, found: CacheForecast) -> Work:
    """The work of a batch from the second epoch on. What else a batch costs, collation say, stays."""
    whole_ns = work.typical_ns
    if whole_ns <= 0:
        return work
    left = max(0.0, 1 - work.rows * found.saved_ns / whole_ns)
    return replace(
        work,
        batch_ns=tuple(int(left * each) for each in work.batch_ns),
        cpu_ns=tuple(int(left * each) for each in work.cpu_ns),
        slow_ns=tuple(int(left * each) for each in work.slow_ns),
        cold_ns=None,
        warm_ns=None,
        read_bytes=0 if left < 1 else work.read_bytes,
    )
