"""Turns a cause into findings: what to change, the edit to type, and the gain that the record supports. Pure.

One function per cause. Each says only what follows from measured numbers; where a gain cannot be computed it says so.
"""

from __future__ import annotations

from collections.abc import Callable

from stoker._record.causes.causes import Causes
from stoker._record.finding import Gain, counted, duration
from stoker._record.schema import LoaderRecord, Machine
from stoker._tools.report.verdict.cache_advice import sample_cache
from stoker._tools.report.verdict.case import AdviceCase, more_workers
from stoker._tools.report.verdict.codes import VerdictFinding
from stoker._tools.report.verdict.cpu_advice import bandwidth, compute, gil, starved
from stoker._tools.report.verdict.loader_advice import head_of_line, parent, slow_worker, start_up, switch


def findings(
    loader: LoaderRecord, machine: Machine, causes: Causes, world_size: int = 1
) -> tuple[VerdictFinding, ...]:
    """What to change, the most promising first."""
    case = AdviceCase(loader, machine, causes, world_size)
    if causes.severity == "none" or causes.cause is None:
        return tuple(_fine(case))
    if not loader.totals.steps and not loader.totals.worker_deaths:
        return (_no_batch(case),)
    found_all = _BY_CAUSE[causes.cause](case)
    if causes.cause in ("io", "compute", "head_of_line") and causes.measurement("slow_worker") is not None:
        found_all.insert(0, slow_worker(case))
    if causes.cause in ("start_up", "parent"):
        found_all[:0] = _held(case)
    cache = sample_cache(case)
    if cache is not None:
        # What names the cause comes first: a cache suits only samples that are not random, which a record does not show.
        found_all.insert(1, cache)
    if loader.engine == "torch":
        other = switch(case)
        # Where the loader's own doing is part of it, that is the second thing to try, else the last.
        found_all.insert(1 if other.gain is not None and other.gain.share else len(found_all), other)
    return tuple(found_all)


def _fine(case: AdviceCase) -> list[VerdictFinding]:
    """For a loader that is not the problem, as far as waiting goes."""
    share = 0.0 if case.causes.stall is None else case.causes.stall
    found = [
        case.finding(
            "not-data",
            f"the training loop waits {share:.1%} of the time",
            "Leave the loader alone: look at the step itself (model, optimiser, logging, evaluation).",
            None,
            Gain(share, "all of the waiting", at_most=True),
        )
    ]
    return _held(case) + found


def _held(case: AdviceCase) -> list[VerdictFinding]:
    """For threads that hold Python's lock much of the time: what they cost is in the steps, and not in the waiting."""
    held = case.causes.measurement("gil_held")
    if held is None:
        return []
    return [
        case.finding(
            "use-processes",
            held.text,
            "Use processes, which have locks of their own: the loader's threads hold Python's lock and slow down the steps.",
            case.edit("executor", "process"),
            Gain(
                None,
                "unknown: the record does not show how long a step waits for the lock; compare the time of a step",
            ),
        )
    ]


def _no_batch(case: AdviceCase) -> VerdictFinding:
    """For a loader that was waited for in vain: nothing can be said of its pace."""
    return case.finding(
        "no-batch",
        f"{duration(case.causes.wait_ns / 1e9)} of waiting without one batch",
        "Find out where the first samples hang: stoker doctor tries them one by one and shows the Python stack of one that "
        "hangs.",
    )


def _io(case: AdviceCase) -> list[VerdictFinding]:
    locked = case.evidence_text("lock_share")
    if locked:
        return [
            case.finding(
                "slow-reads",
                locked,
                "Hold the lock for less, or not at all: one file for each worker, or files that are only read. More workers "
                "would wait longer.",
                None,
                case.at_most("io"),
            )
        ]
    found = more_workers(case, waiting=True)
    if not found:
        found.append(
            case.finding(
                "slow-reads",
                f"{case.worker_share('off_ns')} of the workers' time is off the CPU",
                "Make a sample wait less: larger sequential reads, a local copy or cache, one open file per worker, no lock.",
                None,
                case.at_most("io"),
            )
        )
    if case.loader.engine == "stoker" and case.loader.kind.processes:
        found.append(
            case.finding(
                "use-threads",
                f"{case.worker_share('off_ns')} of the workers' time is off the CPU",
                "Threads wait as well as processes, start at once and share memory. But they may change the batches of a dataset "
                "that is not thread-safe: stoker tune compares them first.",
                None,
                Gain(None, "the rate stays the same; memory and start-up time shrink"),
            )
        )
    return found


def _unknown(case: AdviceCase) -> list[VerdictFinding]:
    deaths = case.loader.totals.worker_deaths
    if deaths:
        return [
            case.finding(
                "dying-workers",
                f"{counted(deaths, 'worker')} died",
                "Find out why workers die: the log and the events of the record say on which sample, and the likely cause.",
                None,
                case.at_most("unknown"),
            )
        ]
    other = "" if case.loader.engine == "stoker" else ", or with stoker's DataLoader (stoker run)"
    return [
        case.finding(
            "no-readings",
            "no CPU times of the workers",
            f"Run it where /proc is readable{other}, to learn what the workers do.",
        )
    ]


_BY_CAUSE: dict[str, Callable[[AdviceCase], list[VerdictFinding]]] = {
    "io": _io, "compute": compute, "bandwidth": bandwidth, "starved": starved, "head_of_line": head_of_line,
    "parent": parent, "start_up": start_up, "gil": gil, "unknown": _unknown,
}  # fmt: skip
