"""A worker's private memory over many samples: what it copied of its parent's, and what it made anew."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_WINDOWS = 4
_UNKNOWN = 0.5
"""Share of what was copied, of nothing that is known, from which on it is taken for memory made anew."""
_STEADY = 0.4
"""A window's growth per sample, over the mean of all, from which on it goes on growing."""
_LEAVING_OFF = 0.5
"""The second half's growth over the first half's, below which a worker is still warming up."""


@dataclass(frozen=True, slots=True)
class Container:
    """A large container of Python objects that the dataset can reach."""

    path: str
    """ "dataset.samples", "dataset.base.rows", "module.CACHE"."""
    kind: str
    items: int
    object_bytes: int
    """About what a worker has copied when it has read all of it: the pages with reference counts of its objects."""
    copied: float
    """Share of the looked-up pages of its objects that the worker has a copy of now."""
    explains: float
    """About which share of all that was copied are pages of its objects; several may have their objects in one page."""


@dataclass(frozen=True, slots=True)
class GrowingContainer:
    """A container on the dataset that got longer in the worker."""

    path: str
    items_before: int
    items_after: int


@dataclass(frozen=True, slots=True)
class GrowthWindow:
    """Some samples in a row, and by how much the worker grew over them."""

    samples: int
    copied_bytes: int
    """Pages that it shared with its parent and now has for itself."""
    own_bytes: int
    """Pages that were not there before; negative where more were given back than taken."""


@dataclass(frozen=True, slots=True)
class GrowthFacts:
    """Samples were fetched in a random order over the whole dataset; the first ones (``warm_up``) are in no window."""

    warm_up: int
    windows: tuple[GrowthWindow, ...]
    containers: tuple[Container, ...] = ()
    """Those of which something was copied, what explains most first."""
    growing: tuple[GrowingContainer, ...] = ()
    available_bytes: int | None = None
    """What all processes together could still take."""
    ranks: int = 1
    """Processes of this job on this machine, each with such workers."""
    copied_bytes: int = 0
    """Since the worker was forked, warm-up included."""

    @property
    def samples(self) -> int:
        """In all windows."""
        return sum(each.samples for each in self.windows)

    @property
    def copied_slope_bytes(self) -> float:
        """Copied per sample, after the warm-up."""
        return sum(each.copied_bytes for each in self.windows) / max(1, self.samples)

    @property
    def own_slope_bytes(self) -> float:
        """Made anew per sample, after the warm-up."""
        return sum(map(self._own, self.windows)) / max(1, self.samples)

    def _own(self, window: GrowthWindow) -> float:
        """With what was copied of nothing that is known: new objects lie in pages that the parent had and had freed, too."""
        unknown = 1 - min(1.0, sum(each.explains for each in self.containers))
        return window.own_bytes + (unknown * window.copied_bytes if unknown > _UNKNOWN else 0)

    @property
    def copies_steadily(self) -> bool:
        """Whether copying went on in two thirds of the windows: no warm-up and no jump does that."""
        return _steady([(each.samples, each.copied_bytes) for each in self.windows])

    @property
    def grows_steadily(self) -> bool:
        """The same of what was made anew."""
        return _steady([(each.samples, self._own(each)) for each in self.windows])

    @property
    def levels_off(self) -> bool:
        """Whether the second half of the windows brought less than half of what the first brought: caches that fill up."""
        half = len(self.windows) // 2
        first, second = (sum(map(self._own, part)) for part in (self.windows[:half], self.windows[-half:]))
        return second < _LEAVING_OFF * first


def _steady(windows: Sequence[tuple[int, float]]) -> bool:
    samples, grown = sum(each[0] for each in windows), sum(each[1] for each in windows)
    if len(windows) < LEAST_WINDOWS or grown <= 0:
        return False
    mean = grown / samples
    return 3 * sum(each / count >= _STEADY * mean for count, each in windows) >= 2 * len(windows)


@dataclass(frozen=True, slots=True)
class MemoryTrend:
    """How a worker's private memory goes on: by ``slope_bytes`` a sample, up to ``most_bytes`` where there is a most.

    ``random``: pages are touched in a random order, so that each sample finds a smaller part of them untouched.
    """

    slope_bytes: float
    most_bytes: float = math.inf
    random: bool = True

    def after(self, samples: float) -> float:
        """Bytes of one worker after so many samples."""
        if not self.random or math.isinf(self.most_bytes):
            return min(self.slope_bytes * samples, self.most_bytes)
        return self.most_bytes * -math.expm1(-self.slope_bytes * samples / self.most_bytes)

    def reaches(self, bytes_: float) -> float:
        """After how many samples one worker has so much; inf: never."""
        if self.slope_bytes <= 0 or bytes_ >= self.most_bytes:
            return math.inf
        if not self.random or math.isinf(self.most_bytes):
            return bytes_ / self.slope_bytes
        return -math.log1p(-bytes_ / self.most_bytes) * self.most_bytes / self.slope_bytes


@dataclass(frozen=True, slots=True)
class MemoryForecast:
    """All workers of a loader together."""

    worker_bytes: int
    """One worker's, at the end of an epoch."""
    total_bytes: int
    ends_at: int | None
    """The step at which memory ends; None: it does not within an epoch, nor in later ones where workers persist."""
    steps: int | None
    """Of an epoch."""


def forecast(
    course: MemoryTrend,
    *,
    workers: int,
    batch: int,
    samples: int | None,
    persistent: bool,
    available: int | None,
) -> MemoryForecast:
    """``samples``: of an epoch, over all workers; None if unknown, and then it is without an end."""
    each = math.inf if samples is None else samples / workers
    worker_bytes = course.after(each)
    ends_at = None
    if available is not None:
        reached = course.reaches(available / workers)
        if reached <= each < math.inf or (reached < math.inf and (persistent or samples is None)):
            ends_at = max(1, math.ceil(reached * workers / batch))
    finite = int(worker_bytes) if math.isfinite(worker_bytes) else 0
    return MemoryForecast(
        finite, finite * workers, ends_at, None if samples is None else math.ceil(samples / batch)
    )
