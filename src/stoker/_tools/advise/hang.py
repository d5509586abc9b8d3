"""Tells a script that hangs from one that is slow: when it was stopped, no batch had come for much longer than usual. Pure."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from stoker._record.finding import duration
from stoker._record.schema import Blame, Event, LoaderRecord, RunRecord
from stoker._tools.report.verdict.codes import VerdictFinding
from stoker._tools.report.verdict.reasons import title

INTERRUPTED = "interrupted"
"""The kind of the event at which a wait for a batch was ended."""
_TIMES = 10
"""A batch that is so much later than usual hangs."""
_LEAST_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Hang:
    """One loader's last wait. ``place``: which worker was on which index, in words; "" if not known."""

    loader: str
    """As one would point at it."""
    name: str
    site: str | None
    waited_ns: int
    usual_ns: int | None
    """Between two batches; None: none had come."""
    place: str

    @property
    def sentence(self) -> str:
        """What was seen."""
        waited = duration(self.waited_ns / 1e9)
        usual = "" if self.usual_ns is None else f" (usual: one every {duration(self.usual_ns / 1e9)})"
        place = f": {self.place}" if self.place else ""
        return f"{self.loader} gave no batch for {waited} when the script was stopped{usual}{place}."

    def finding(self, script: str) -> VerdictFinding:
        """What to do about it."""
        seen = f"no batch for {duration(self.waited_ns / 1e9)}{', ' if self.place else ''}{self.place}"
        return VerdictFinding(
            "no-batch",
            "high",
            seen,
            "Find out what this sample waits for: stoker doctor tries samples one by one and shows the Python stack of one that "
            f"hangs (stoker doctor {script}:FUNCTION, where FUNCTION returns the loader). In the running script, "
            "py-spy dump shows it.",
        )


def find_hang(record: RunRecord) -> Hang | None:
    """The longest last wait, of a run that was stopped. None where batches came until the end."""
    found = [each for loader in record.loaders if (each := _of(loader)) is not None]
    return max(found, key=lambda each: each.waited_ns, default=None)


def without_hang(record: RunRecord) -> RunRecord:
    """The record as it was before the last wait: what else there is to say of the loaders. Those without a batch stay."""
    return replace(record, loaders=[_shortened(each) for each in record.loaders])


def _last(loader: LoaderRecord) -> Event | None:
    return next((each for each in reversed(loader.events) if each.kind == INTERRUPTED), None)


def _of(loader: LoaderRecord) -> Hang | None:
    stopped, given_ns = _last(loader), loader.steps.get("given_ns") or []
    if stopped is None:
        return None
    place = stopped.reason
    if not given_ns:
        waited_ns = loader.totals.wait_ns
        return (
            Hang(title(loader), loader.name, loader.site, waited_ns, None, place)
            if waited_ns >= _LEAST_NS
            else None
        )
    waited_ns = stopped.at_ns - max(given_ns)
    gaps = [after - before for before, after in pairwise(sorted(given_ns)) if after > before]
    usual_ns = int(median(gaps)) if gaps else 0
    late = waited_ns >= max(_LEAST_NS, _TIMES * usual_ns)
    return Hang(title(loader), loader.name, loader.site, waited_ns, usual_ns, place) if late else None


def _shortened(loader: LoaderRecord) -> LoaderRecord:
    hang = _of(loader)
    if hang is None or hang.usual_ns is None:
        return loader
    left_ns = hang.waited_ns
    blame: list[Blame] = []
    for each in loader.blame:
        cut_ns = min(each.ns, left_ns) if (each.stage, each.cause) == ("fetch", "unknown") else 0
        left_ns -= cut_ns
        if each.ns > cut_ns:
            blame.append(replace(each, ns=each.ns - cut_ns))
    cut_ns = hang.waited_ns - left_ns
    totals = replace(
        loader.totals,
        wait_ns=max(0, loader.totals.wait_ns - cut_ns),
        wall_ns=max(0, loader.totals.wall_ns - cut_ns),
    )
    made = copy.copy(loader)
    made.blame, made.totals = blame, totals
    made.events = [each for each in loader.events if each.kind != INTERRUPTED]
    return made
