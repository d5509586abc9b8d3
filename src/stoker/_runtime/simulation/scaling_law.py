"""The scaling curve: measured intervals by number of workers, the law that fits them, its knee, and the loss beyond it.

There are two laws. The universal scalability law is interval = batch · (1 + σ(N−1) + κN(N−1)) / N, with contention σ and
coherence κ. The roof is interval = max(batch / N, roof), for a resource that is suddenly full: CPUs, the step, the parent. The
better fit wins.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

KNEE = 0.05
"""The knee is the smallest number of workers within this share of the law's best."""

FLAT = 0.03
"""Times that differ by less say nothing about workers."""


@dataclass(frozen=True, slots=True)
class ScalingLaw:
    """The interval between batches by number of workers."""

    name: str
    """ "usl" or "roof"."""
    batch_ns: float
    """One worker's time for a batch."""
    sigma: float = 0.0
    kappa: float = 0.0
    roof_ns: float = 0.0
    error: float = 0.0
    """The typical distance of measured points from the law, as a share."""

    def interval_ns(self, workers: int) -> float:
        """The interval between two batches with so many workers."""
        if self.name == "roof":
            return max(self.batch_ns / workers, self.roof_ns)
        slowed = 1.0 + self.sigma * (workers - 1) + self.kappa * workers * (workers - 1)
        return self.batch_ns * slowed / workers

    def knee(self, most: int) -> int:
        """The smallest number of workers, up to ``most``, that more workers hardly improve on."""
        best_ns = min(self.interval_ns(count) for count in range(1, most + 1))
        return next(count for count in range(1, most + 1) if self.interval_ns(count) <= best_ns * (1 + KNEE))

    @property
    def peak(self) -> float | None:
        """The number from which on more workers do harm; None: they never do."""
        if self.kappa <= 0.0:
            return None
        return max(1.0, math.sqrt(max(0.0, 1.0 - self.sigma) / self.kappa))


def fit(points: Iterable[tuple[int, float]], *, floor_ns: float = 0.0) -> ScalingLaw | str:
    """The law for pairs of workers and interval in nanoseconds, or the reason why there is none. Points without workers are
    ignored.

    ``floor_ns`` is the training loop's time for a batch. Points at that floor say nothing about workers.
    """
    best = _best(points)
    if len(best) < 2:
        return "too few numbers of workers were measured"
    times = [interval for _, interval in best]
    if max(times) <= min(times) * (1 + FLAT):
        return "the interval is the same for all numbers of workers: something else limits it"
    slope = [point for point in best if point[1] > floor_ns * (1 + FLAT)]
    if slope and len(slope) < len(best):
        batch_ns = median(count * interval for count, interval in slope)
        return _judged(ScalingLaw("roof", batch_ns, roof_ns=min(times)), best)
    laws = [_usl(best)]
    if len(best) > 2:
        laws.append(_roof(best))
    return min(laws, key=_closeness)


def curve(points: Iterable[tuple[int, float]], *, floor_ns: float = 0.0) -> dict[str, Any]:
    """The scaling curve as plain values: points, law (or why there is none), knee, peak, and the loss beyond the best point.

    ``loss`` is the share of the best throughput that the largest measured number of workers loses. None: no larger number was
    measured.
    """
    points = list(points)
    shown = [
        {"workers": count, "interval_ns": interval, "batches_per_s": 1e9 / interval if interval > 0 else None}
        for count, interval in sorted(points)
    ]
    best = _best(points)
    law = fit(points, floor_ns=floor_ns)
    told: dict[str, Any] = {"points": shown, "law": None, "why_not": None, "knee": None, "peak": None}
    if isinstance(law, str):
        told["why_not"] = law
    else:
        most = best[-1][0]
        told["law"] = {
            "name": law.name,
            "batch_ns": law.batch_ns,
            "sigma": law.sigma if law.name == "usl" else None,
            "kappa": law.kappa if law.name == "usl" else None,
            "roof_ns": law.roof_ns if law.name == "roof" else None,
            "error": law.error,
            "fitted": [{"workers": count, "interval_ns": law.interval_ns(count)} for count, _ in best],
        }
        told["knee"] = law.knee(most)
        told["peak"] = law.peak
    return told | _loss(best)


def _loss(best: Sequence[tuple[int, float]]) -> dict[str, Any]:
    if not best:
        return {"best": None, "loss": None, "loss_at": None}
    workers, interval = min(best, key=lambda point: point[1])
    last, last_interval = best[-1]
    if last == workers:
        return {"best": workers, "loss": None, "loss_at": None}
    return {"best": workers, "loss": 1.0 - interval / last_interval, "loss_at": last}


def _best(points: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
    """The shortest interval for each number of workers, by number."""
    found: dict[int, float] = {}
    for count, interval in points:
        if count > 0 and interval > 0:
            found[count] = min(interval, found.get(count, interval))
    return sorted(found.items())


def _usl(points: Sequence[tuple[int, float]]) -> ScalingLaw:
    """Linear in its terms: N · interval = batch + batch·σ(N−1) + batch·κN(N−1). Negative terms are left out."""
    terms = [(), (0,), (1,)] if len(points) < 3 else [(), (0,), (1,), (0, 1)]
    laws = []
    for chosen in terms:
        rows, wanted = [], []
        for count, interval in points:
            whole = count * interval
            each = (1.0, count - 1.0, count * (count - 1.0))
            rows.append([each[0] / whole, *(each[1 + term] / whole for term in chosen)])
            wanted.append(1.0)
        solved = _least_squares(rows, wanted)
        if solved is None or solved[0] <= 0 or any(value < 0 for value in solved):
            continue
        found = dict(zip(chosen, solved[1:], strict=True))
        law = ScalingLaw("usl", solved[0], found.get(0, 0.0) / solved[0], found.get(1, 0.0) / solved[0])
        laws.append(_judged(law, points))
    if not laws:
        # A speed-up above linear comes from caches, or from a disturbed first point. Assume no contention.
        laws.append(
            _judged(ScalingLaw("usl", median(count * interval for count, interval in points)), points)
        )
    return min(laws, key=_closeness)


def _roof(points: Sequence[tuple[int, float]]) -> ScalingLaw:
    """The first points lie on the slope, the others under the roof. The division with the best fit wins."""
    laws = []
    for edge in range(1, len(points)):
        batch_ns = median(count * interval for count, interval in points[:edge])
        roof_ns = median(interval for _, interval in points[edge:])
        laws.append(_judged(ScalingLaw("roof", batch_ns, roof_ns=roof_ns), points))
    return min(laws, key=_closeness)


def _closeness(law: ScalingLaw) -> float:
    """The order of choice between laws: among equally close ones, the simplest is first."""
    return round(law.error, 3)


def _judged(law: ScalingLaw, points: Sequence[tuple[int, float]]) -> ScalingLaw:
    off = [law.interval_ns(count) / interval - 1.0 for count, interval in points]
    error = (sum(share * share for share in off) / len(off)) ** 0.5
    return ScalingLaw(law.name, law.batch_ns, law.sigma, law.kappa, law.roof_ns, error)


def _least_squares(rows: Sequence[Sequence[float]], wanted: Sequence[float]) -> list[float] | None:
    """Solve the normal equations for up to three unknowns by elimination. None: they have no unique solution."""
    size = len(rows[0])
    matrix = [
        [sum(row[a] * row[b] for row in rows) for b in range(size)]
        + [sum(row[a] * value for row, value in zip(rows, wanted, strict=True))]
        for a in range(size)
    ]
    scale = [matrix[a][a] ** 0.5 or 1.0 for a in range(size)]
    matrix = [
        [matrix[a][b] / scale[a] / scale[b] for b in range(size)] + [matrix[a][size] / scale[a]]
        for a in range(size)
    ]
    for a in range(size):
        pivot = max(range(a, size), key=lambda row: abs(matrix[row][a]))
        matrix[a], matrix[pivot] = matrix[pivot], matrix[a]
        if abs(matrix[a][a]) < 1e-9:
            return None
        for row in range(size):
            if row != a:
                share = matrix[row][a] / matrix[a][a]
                matrix[row] = [mine - share * its for mine, its in zip(matrix[row], matrix[a], strict=True)]
    return [matrix[a][size] / matrix[a][a] / scale[a] for a in range(size)]
