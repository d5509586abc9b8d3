"""The forecast for workers on other hosts: ``stoker tune TARGET --executor ray``.

One worker is watched here, as in every tuning. From its time and the bytes of a batch follows what N remote CPUs would deliver: the
CPUs, the network, or the training process is the limit.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stoker._host.secrets import masked
from stoker._record.finding import duration, size
from stoker._runtime.simulation.work import Work
from stoker._tools.render.terminal import WIDEST
from stoker._tools.tune import demand as demands
from stoker._tools.tune.search import Search
from stoker._tools.tune.session import TuneSession

GBIT_BYTES = 1.1e8
"""What arrives in a second over a link of 1 Gbit/s, without the headers of its protocols."""
LINK_BYTES_S = 10 * GBIT_BYTES
REMOTE_NS = 400_000
"""What the training process spends on a remote batch more than on a local one, beside the copy (``benchmarks/ray.py``)."""
COPY_BYTES_S = 4e9
"""One copy from the object store into the arena."""
_ENOUGH = 0.97
"""Of the most that can be had: further CPUs give less than the rest."""


@dataclass(frozen=True, slots=True)
class RemotePoint:
    """The forecast for one number of remote CPUs."""

    cpus: int
    batches_s: float
    limit: str
    """ "CPUs", "network", "training process" or "training step"."""


@dataclass(frozen=True, slots=True)
class RemoteForecast:
    """The measured work, the assumptions, and a point for each number of CPUs."""

    target: str
    batch_s: float
    batch_bytes: int
    rows: int
    local: int
    link_bytes_s: float
    step_s: float | None
    points: tuple[RemotePoint, ...]
    failure: str = ""

    @property
    def enough(self) -> RemotePoint | None:
        """The fewest CPUs with which more would give next to nothing."""
        if not self.points:
            return None
        most = max(each.batches_s for each in self.points)
        return next(each for each in self.points if each.batches_s >= _ENOUGH * most)

    @property
    def bytes_per_cpu_s(self) -> float:
        """The bytes that one CPU makes in a second: the network carries ``link_bytes_s`` divided by this many CPUs."""
        return self.batch_bytes / self.batch_s if self.batch_s else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain values, for ``--json``."""
        return {
            "format": "stoker-remote-forecast",
            "version": 1,
            **asdict(self),
            "enough": None if self.enough is None else self.enough.cpus,
        }


def forecast(
    work: Work, most: int, *, local: int = 0, link_bytes_s: float = LINK_BYTES_S, step_s: float | None = None
) -> tuple[RemotePoint, ...]:
    """What 1 to ``most`` remote CPUs deliver, beside ``local`` workers. Pure.

    CPUs make (N + n) / t batches a second; the network brings link / bytes, and n / t are made here; the training process takes
    its time for each; the step wants no more than 1 / step.
    """
    batch_s = max(1e-9, work.typical_ns / 1e9)
    made_here = local / batch_s
    handling_s = (work.handling_ns + REMOTE_NS) / 1e9 + work.batch_bytes / COPY_BYTES_S
    limits = {
        "network": link_bytes_s / max(1, work.batch_bytes) + made_here,
        "training process": 1 / handling_s,
    }
    if step_s:
        limits["training step"] = 1 / step_s
    name = min(limits, key=lambda each: limits[each])
    found = []
    for cpus in _counts(most):
        rate = (cpus + local) / batch_s
        found.append(
            RemotePoint(cpus, rate, "CPUs") if rate < limits[name] else RemotePoint(cpus, limits[name], name)
        )
    return tuple(found)


def tune_remote(
    target: object,
    *,
    most: int,
    local: int = 0,
    link_bytes_s: float = LINK_BYTES_S,
    batch_size: int | None = None,
    step: str | None = None,
    step_s: float | None = None,
    record: str | None = None,
    accumulate: int = 1,
    ranks: int | None = None,
    budget_s: float = 45.0,
    progress: Callable[[str, float], None] = lambda what, share: None,
) -> RemoteForecast:
    """Watch one worker of the target, and forecast. Raises TargetError, and ValueError for arguments that contradict each other."""
    demand, located = demands.resolved(
        target, step=step, step_s=step_s, record=record, accumulate=accumulate, ranks=ranks, budget_s=budget_s,
        batch_size=batch_size,
    )  # fmt: skip
    session = TuneSession(target, batch_size=batch_size, budget_s=budget_s)
    search = Search(
        session,
        demand,
        step=located if isinstance(located, str) else None,
        ranks=ranks,
        progress=lambda what: progress(what, session.share),
    )
    try:
        search.watch()
    finally:
        session.close()
    name = target if isinstance(target, str) else type(target).__name__
    if search.work is None:
        return RemoteForecast(
            name, 0.0, 0, 0, local, link_bytes_s, None, (), search.failure or "no batch could be made"
        )
    wanted_s = search.demand.batch_ns / 1e9 or None
    work = search.work
    points = forecast(work, most, local=local, link_bytes_s=link_bytes_s, step_s=wanted_s)
    return RemoteForecast(
        name, work.typical_ns / 1e9, work.batch_bytes, work.rows, local, link_bytes_s, wanted_s, points
    )


def lines(found: RemoteForecast, width: int = WIDEST) -> list[str]:
    """The forecast for a terminal."""
    return [part for line in _lines(found) for part in textwrap.wrap(masked(line), width) or [""]]


def _lines(found: RemoteForecast) -> list[str]:
    if found.failure:
        return [f"{found.target}: no forecast: {found.failure}"]
    told = [
        f"{found.target}: a batch of {found.rows} takes one worker {duration(found.batch_s)} and has {size(found.batch_bytes)}",
        f"One remote CPU fills {size(int(found.bytes_per_cpu_s))}/s of a link of {size(int(found.link_bytes_s))}/s",
        "",
        "remote CPUs   batches/s   limit",
    ]
    told += [f"{each.cpus:11}   {each.batches_s:9.1f}   {each.limit}" for each in found.points]
    best = found.enough
    assert best is not None
    told += ["", _advice(found, best)]
    return told


def _advice(found: RemoteForecast, best: RemotePoint) -> str:
    alone = found.points[0].batches_s
    if best.cpus == found.points[0].cpus and best.limit == "network":
        return (
            'The network is slower than one CPU here: keep the workers on this machine (executor="process").'
        )
    local = f"local={found.local}" if found.local else ""
    edit = (
        f"num_workers={best.cpus + found.local}, executor={f'stoker.Ray({local})' if local else repr('ray')}"
    )
    why = "" if best.limit == "CPUs" else f"; beyond them the {best.limit} is the limit"
    return (
        f"{best.cpus} remote CPUs give {best.batches_s / alone:.1f} times the rate of one{why}. Write: {edit}"
    )


def _counts(most: int) -> Sequence[int]:
    found = []
    count = 1
    while count < most:
        found.append(count)
        count *= 2
    return [*found, most]
