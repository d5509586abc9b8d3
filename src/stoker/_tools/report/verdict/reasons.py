"""Puts a cause into words: the verdict's sentence, its reasons, and the measured lines under it. Pure."""

from __future__ import annotations

from stoker._record.causes.causes import Causes
from stoker._record.finding import capitalised, counted, duration
from stoker._record.schema import CacheUse, LoaderRecord, Machine
from stoker._tools.render import loader_names
from stoker._tools.report.verdict.forecast import pace
from stoker._tools.report.verdict.table import RECORDING, cause_of, percents

NAMES = {
    "io": "samples wait for storage, network, a lock or a sleep",
    "compute": "making samples takes more CPU than the workers have time for",
    "gil": "threads wait for Python's global lock",
    "starved": "workers are ready to run and get no CPU",
    "bandwidth": "workers wait for memory: bandwidth, cache or hyper-threads",
    "parent": "the training process itself is the bottleneck",
    "start_up": "workers take long to start",
    "head_of_line": "finished batches wait for an earlier, slow one",
    "unknown": "the cause was not measured",
}
TAKERS = {
    "quota": "the cgroup's quota is used up",
    "own": "this job has more threads at work than CPUs",
    "neighbours": "other processes use the CPUs",
}
_ABOUT = {
    "io": ("slow_worker", "iowait_share"),
    "compute": ("slow_worker", "helpers_share", "runq_share", "threads_per_worker", "cpu_per_row_ratio"),
    "bandwidth": ("cpu_per_row_ratio", "runq_share"),
    "starved": (
        "throttled_share",
        "runq_share",
        "wanted_cpus",
        "threads_per_worker",
        "loop_runq_share",
        "foreign_cpus",
        "cpu_pressure",
    ),
    "gil": ("late_wake_us", "gil_full", "off_share"),
    "head_of_line": ("slow_worker", "slow_samples"),
}
"""By cause: the measured quantities that speak for it, the weightiest first."""
_MOST_EVIDENCE = 6


def title(loader: LoaderRecord) -> str:
    """The loader as one would point at it."""
    return loader_names.title(loader.name, loader.dataset, loader.site)


def sentence(loader: LoaderRecord, causes: Causes) -> str:
    """The verdict in one sentence: which loader, how much, which cause."""
    if causes.stall is None:
        return f"{title(loader)} did nothing that took time, so there is nothing to judge."
    if not loader.totals.steps and not loader.totals.worker_deaths:
        return f"The training loop waited {duration(causes.wait_ns / 1e9)} for {title(loader)}, and no batch came."
    if causes.severity == "none":
        text = f"Data is not the problem: the training loop waits {causes.stall:.1%} of the time for {title(loader)}"
        return f"{text}, but shares Python's lock with it." if causes.measurement("gil_held") else f"{text}."
    if causes.cause is None:  # sums that do not add up, in a record that somebody wrote
        return f"The training loop waits {causes.stall:.0%} of the time for {title(loader)}: the record does not say why."
    name = NAMES[causes.cause]
    if causes.cause == "starved":
        who = "the training process gets" if _is_parents(loader, causes) else "workers get"
        name = f"{who} no CPU: {TAKERS.get(causes.culprit or '', 'what uses the CPUs was not measured')}"
    elif causes.cause == "compute" and not loader.kind.workers:
        name = "without workers, the training process makes every sample itself"
    elif causes.cause == "start_up" and not loader.kind.workers:
        name = "starting an epoch takes long"
    elif causes.cause == "unknown" and loader.totals.worker_deaths:
        name = f"{counted(loader.totals.worker_deaths, 'worker')} died, and their batches were made again"
    if causes.severity == "low":
        share = f"{causes.stall:.1%} of the time, little,"
    else:
        share = f"{causes.stall:.0%} of the time"
    return f"The training loop waits {share} for {title(loader)}: {name} ({label(causes)})."


def _is_parents(loader: LoaderRecord, causes: Causes) -> bool:
    """Whether it is the training process, and not its workers, that lacks a CPU while the loop waits."""
    if loader.kind.workers and (causes.culprit == "own" or causes.measurement("helpers_share") is not None):
        return False  # it waits for threads of the workers, or has too many of these beside it
    stages = causes.stages("starved")
    own_ns = sum(ns for stage, ns in stages.items() if stage in ("plan", "wake", "open", "pin", "copy"))
    return not loader.kind.workers or 2 * own_ns > sum(stages.values())


def label(causes: Causes) -> str:
    """The cause in one word, or two."""
    if causes.cause is None:
        return "none"
    word = causes.cause.replace("_", "-")
    return word if causes.culprit is None else f"{word}, {causes.culprit}"


def why(loader: LoaderRecord, machine: Machine, causes: Causes) -> tuple[str, ...]:
    """Two or three lines."""
    lines = []
    if causes.wait_ns and causes.cause is not None:
        whole = _whole(causes)
        stage = next((each for each in causes.stages(causes.cause) if each != "record"), None)
        where = "" if stage is None else f", most of it in {stage.replace('_', '-')}"
        lines.append(
            f"Of all waiting, {whole[causes.cause]}% is {causes.cause.replace('_', '-')}{where}{_second(causes.cause, whole)}."
        )
    line = _arithmetic(loader, machine, causes)
    if line:
        lines.append(line)
    if causes.hidden_ns:
        lines.append(
            f"{causes.hidden_ns / max(1, causes.wait_ns):.0%} of the waiting was hidden: the accelerator still had work."
        )
    copied_ns = loader.totals.copied_ns
    if copied_ns:
        exposed_ns = sum(each.ns for each in loader.blame if each.stage == "copy")
        hidden = max(0.0, 1 - exposed_ns / copied_ns)
        lines.append(f"{hidden:.0%} of the time of copies to the device was hidden behind the loop.")
    return tuple(lines[:3])


def evidence(loader: LoaderRecord, causes: Causes) -> tuple[str, ...]:
    """Measured lines, those that settled the cause first, and what was missing."""
    if not loader.totals.steps:
        return ()
    about = _ABOUT.get(causes.cause or "", ())
    told = [each for each in causes.evidence if each.code in about]
    lines = [capitalised(each.text) for each in sorted(told, key=lambda each: about.index(each.code))]
    totals = loader.totals
    if causes.cause == "start_up" and totals.first_batch_ns is not None:
        lines.append(
            f"The first batch came {totals.first_batch_ns / 1e9:.2f} s after iter(); epochs: {totals.epochs}"
        )
    if totals.steps and loader.kind.workers:
        ready = f"{totals.ready / totals.steps:.0%} of batches were ready when asked for"
        depth = f"; {totals.depth / totals.steps:.1f} lay ready on average"
        window = "" if totals.window is None else f", in a window of {totals.window}"
        lines.append(capitalised(ready + depth + window))
    if loader.cache is not None:
        lines.append(cache_use(loader.cache))
    lines += [f"Not measured: {each}" for each in causes.missing]
    return tuple(lines[:_MOST_EVIDENCE])


def cache_use(use: CacheUse) -> str:
    """What sample caches did, in a sentence without its full stop."""
    asked = use.hits + use.misses
    hits = f"{use.hit_share:.0%} of " if use.hit_share is not None else ""
    text = f"The cache had {hits}{counted(asked, 'sample')}, which saved {duration(use.saved_ns / 1e9)} of the workers' time"
    full = f"; {counted(use.passed, 'sample')} could not be stored or found no room" if use.passed else ""
    return f"{text}{full}"


def _arithmetic(loader: LoaderRecord, machine: Machine, causes: Causes) -> str | None:
    """Supply against demand, for causes that are about how fast batches are made."""
    if causes.severity == "none" or causes.cause not in (
        "io",
        "compute",
        "starved",
        "bandwidth",
        "gil",
        "unknown",
    ):
        return None
    now = pace(loader, machine, causes)
    if now is None:
        return None
    if now.workers == 0:
        return (
            f"Without workers the training process makes each batch itself, {duration(now.batch_s)} of every "
            f"{duration(now.batch_s + now.step_s)}."
        )
    if now.batch_s < now.workers * now.step_s:
        return None  # they would be fast enough: it is not their pace that is waited for
    supply = (
        f"A batch takes {duration(now.batch_s)} of the worker's time"
        if now.workers == 1
        else f"A batch takes {duration(now.batch_s)} of a worker's time, so {now.workers} make one every "
        f"{duration(now.batch_s / now.workers)}"
    )
    return f"{supply}; the training loop takes one every {duration(now.step_s)}."


def _whole(causes: Causes) -> dict[str, int]:
    """Percent of the wait by cause, as the table under it has them."""
    sums: dict[str, int] = {causes.cause or "unknown": 0}
    for each in causes.parts:
        sums[cause_of(each)] = sums.get(cause_of(each), 0) + each.ns
    return dict(zip(sums, percents(list(sums.values())), strict=True))


def _second(first: str, whole: dict[str, int]) -> str:
    others = {cause: percent for cause, percent in whole.items() if cause not in (first, RECORDING)}
    cause = max(others, key=others.__getitem__, default=first)
    return f"; {whole[cause]}% is {cause.replace('_', '-')}" if others and whole[cause] >= 10 else ""
