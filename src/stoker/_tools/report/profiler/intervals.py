"""Sets of moments, as sorted intervals that do not touch each other's inside: union, difference and the like, each n log n."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Moments = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Intervals:
    """``began`` and ``ended`` of each, in order; none is empty and no two overlap."""

    began: Moments
    ended: Moments

    @property
    def total_ns(self) -> int:
        """How long they are together."""
        return int((self.ended - self.began).sum())

    def __len__(self) -> int:
        return len(self.began)

    def __or__(self, other: Intervals) -> Intervals:
        return union(np.concatenate([self.began, other.began]), np.concatenate([self.ended, other.ended]))

    def __and__(self, other: Intervals) -> Intervals:
        count = len(self) + len(other)
        points = np.concatenate([self.began, other.began, self.ended, other.ended])
        turns = np.repeat(np.array([1, -1], dtype=np.int64), count)
        order = np.lexsort((turns, points))  # at one moment what ends goes first
        points, inside = points[order], np.cumsum(turns[order]) == 2
        if not count:
            return self
        return _proper(points[:-1][inside[:-1]], points[1:][inside[:-1]])

    def __sub__(self, other: Intervals) -> Intervals:
        if not len(self) or not len(other):
            return self
        return self & other.gaps(int(self.began[0]), int(self.ended[-1]))

    def gaps(self, began_ns: int, ended_ns: int) -> Intervals:
        """What they leave free between two moments."""
        inside = self.within(began_ns, ended_ns)
        began = np.concatenate([np.array([began_ns], dtype=np.int64), inside.ended])
        ended = np.concatenate([inside.began, np.array([ended_ns], dtype=np.int64)])
        return _proper(began, ended)

    def within(self, began_ns: int, ended_ns: int) -> Intervals:
        """What lies between two moments."""
        return _proper(np.maximum(self.began, began_ns), np.minimum(self.ended, ended_ns))

    def hold(self, moments: Moments) -> npt.NDArray[np.bool_]:
        """For each moment whether it lies in one of them, ends included."""
        if not len(self):
            return np.zeros(len(moments), dtype=bool)
        place = np.searchsorted(self.began, moments, side="right") - 1
        held: npt.NDArray[np.bool_] = (place >= 0) & (moments <= self.ended[np.maximum(place, 0)])
        return held

    def chosen(self, which: npt.NDArray[np.bool_]) -> Intervals:
        """Return the intervals for which it is true."""
        return Intervals(self.began[which], self.ended[which])


def union(began: Moments, ended: Moments) -> Intervals:
    """Return the union of intervals in any order that may overlap; those without length are left out."""
    proper = ended > began
    began, ended = began[proper], ended[proper]
    if not len(began):
        return Intervals(began, ended)
    order = np.argsort(began, kind="stable")
    began, ended = began[order], np.maximum.accumulate(ended[order])
    first = np.concatenate([np.array([True]), began[1:] > ended[:-1]])
    last = np.concatenate([first[1:], np.array([True])])
    return Intervals(began[first], ended[last])


def _proper(began: Moments, ended: Moments) -> Intervals:
    keep = ended > began
    return Intervals(began[keep], ended[keep])
