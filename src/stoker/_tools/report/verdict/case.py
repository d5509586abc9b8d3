"""The case that advice is given about: one loader, the machine, and the causes of its waits. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from stoker._record.causes.causes import Causes
from stoker._record.finding import Edit, Gain, counted, duration
from stoker._record.schema import LoaderRecord, Machine
from stoker._tools.report.verdict.codes import VerdictFinding
from stoker._tools.report.verdict.forecast import gain_of_workers, most_workers, pace, wanted_workers

_LEAST_GAIN = 0.01
"""An edit that would save less is not worth a line."""


@dataclass(frozen=True, slots=True)
class AdviceCase:
    """What advice is given about."""

    loader: LoaderRecord
    machine: Machine
    causes: Causes
    world_size: int = 1
    """Ranks of the run, each with a share of the dataset."""

    def option(self, name: str) -> Any:
        """The value of an option; None when the record does not have it."""
        found = self.loader.options.get(name)
        return None if found is None else found.value

    def edit(self, name: str, value: Any) -> Edit:
        """An argument of the loader and its new value."""
        found = self.loader.options.get(name)
        before = None if found is None or found.value is None else f"{name}={found.value!r}"
        return Edit(f"{name}={value!r}", before, self.loader.site)

    def at_most(self, *causes: str) -> Gain:
        """The bound that holds whatever is done: all the waiting of these causes."""
        share = (self.causes.stall or 0.0) * self.causes.share(*causes)
        return Gain(share, f"all waiting of this kind is {share:.0%} of the time", at_most=True)

    def finding(
        self, code: str, evidence: str, advice: str, edit: Edit | None = None, gain: Gain | None = None
    ) -> VerdictFinding:
        """With the loader's severity."""
        return VerdictFinding(code, self.causes.severity, evidence, advice, edit, gain)

    def evidence_text(self, code: str) -> str:
        """The evidence of that name in words; empty without it."""
        found = self.causes.measurement(code)
        return "" if found is None else found.text

    def worker_share(self, column: str) -> str:
        """What share of the workers' time that column of theirs has, in words."""
        metered_ns = sum(each.metered_ns for each in self.loader.workers)
        if not metered_ns:
            return "an unknown share"
        return f"{sum(getattr(each, column) for each in self.loader.workers) / metered_ns:.0%}"


def more_workers(case: AdviceCase, *, waiting: bool) -> list[VerdictFinding]:
    """More workers, where they would help; an empty list where not, or where the loader sees to that itself."""
    chosen = case.loader.options.get("num_workers")
    if chosen is not None and chosen.why.startswith("auto: "):
        return []
    now = pace(case.loader, case.machine, case.causes)
    most = most_workers(case.machine, waiting=waiting)
    if now is None or most is None:
        return []
    count = wanted_workers(now, most=most)
    if count <= now.workers:
        return []
    # What several wait for may be one thing, a lock or a disk at its limit: then more of them wait longer. And if not, order
    # and turns at the CPU cost less as well. So it is a bound, of all that is not the training process's own.
    bound = waiting and now.workers > 1
    share = 1.0 - case.causes.share("parent", "start_up")
    gain = gain_of_workers(now, count, share if bound else case.causes.share("io", "compute", "unknown"))
    if gain.share is not None and gain.share < _LEAST_GAIN:
        return []
    gain = replace(gain, at_most=bound and gain.share is not None)
    doing = (
        f"{counted(now.workers, 'worker')} take{'s' * (now.workers == 1)}"
        if now.workers
        else "the training process takes"
    )
    evidence = f"{doing} {duration(now.batch_s)} for a batch, a step takes {duration(now.step_s)}"
    why = (
        "waiting scales beyond the CPUs, unless all workers wait for one lock or one disk at its limit"
        if waiting
        else "computing scales up to the number of CPUs"
    )
    return [
        case.finding(
            "more-workers",
            evidence,
            f"Use more workers: {why}. `stoker tune` measures how many.",
            case.edit("num_workers", count),
            gain,
        )
    ]
