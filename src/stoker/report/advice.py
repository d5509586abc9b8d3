"""What to do about a cause: findings with the edit as it would be typed and the gain that the record supports. Pure.

One function per cause. Each says only what follows from measured numbers; where a gain cannot be computed it says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stoker._metrics.causes import CROWDED, Causes
from stoker._metrics.contention import active_threads
from stoker._metrics.record import LoaderRecord, Machine
from stoker.report.finding import Edit, Finding, Gain
from stoker.report.forecast import gain_of_workers, most_workers, pace, wanted_workers


@dataclass(frozen=True, slots=True)
class Case:
    """What advice is given about."""

    loader: LoaderRecord
    machine: Machine
    causes: Causes

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
        return Gain(share, f"all waiting of this kind, {share:.0%} of the time", at_most=True)

    def finding(
        self, code: str, evidence: str, advice: str, edit: Edit | None = None, gain: Gain | None = None
    ) -> Finding:
        """With the loader's severity."""
        return Finding(code, self.causes.severity, evidence, advice, edit, gain)


def findings(loader: LoaderRecord, machine: Machine, causes: Causes) -> tuple[Finding, ...]:
    """What to change, the most promising first."""
    case = Case(loader, machine, causes)
    if causes.severity == "none" or causes.cause is None:
        return tuple(_fine(case))
    found_all = _BY_CAUSE[causes.cause](case)
    if loader.engine == "torch":
        switch = _switch(case)
        # Where the loader's own doing is most of it, that is the second thing to try, else the last.
        found_all.insert(1 if switch.gain is not None and switch.gain.share else len(found_all), switch)
    return tuple(found_all)


def _fine(case: Case) -> list[Finding]:
    """For a loader that is not the problem, as far as waiting goes."""
    share = 0.0 if case.causes.stall is None else case.causes.stall
    found = [
        case.finding(
            "not-data",
            f"the training loop waits {share:.1%} of the time",
            "Leave the loader alone: look at the step itself (model, optimiser, logging, evaluation).",
            None,
            Gain(share, "all waiting there is", at_most=True),
        )
    ]
    held = case.causes.told("gil_held")
    if held is not None:
        found.insert(
            0,
            case.finding(
                "use-processes",
                held.text,
                "Steps are slowed by the loader's threads, which hold Python's lock: processes have locks of their own.",
                case.edit("executor", "process"),
                Gain(
                    None,
                    "how much of a step waits for the lock is not in the record: compare the step's time",
                ),
            ),
        )
    return found


def _io(case: Case) -> list[Finding]:
    found = _more_workers(case, waiting=True)
    if not found:
        found.append(
            case.finding(
                "slow-reads",
                f"{_off(case)} of the workers' time is off the CPU",
                "Make a sample wait less: larger sequential reads, a local copy or cache, one open file per worker, no lock.",
                None,
                case.at_most("io"),
            )
        )
    if case.loader.engine == "stoker" and case.loader.executor == "process":
        found.append(
            case.finding(
                "use-threads",
                f"{_off(case)} of the workers' time is off the CPU",
                "Threads wait as well as processes, start at once and share memory; try them if the dataset is thread-safe.",
                case.edit("executor", "thread"),
                Gain(None, "the rate stays that of the waiting; memory and start-up shrink"),
            )
        )
    return found


def _compute(case: Case) -> list[Finding]:
    found = _more_workers(case, waiting=False)
    stage = next(iter(case.causes.stages("compute")), "fetch")
    what = (
        "collate_fn"
        if stage == "collate"
        else "__getitem__"
        if stage == "fetch"
        else "what a batch is made of"
    )
    found.append(
        case.finding(
            "cheaper-samples",
            f"workers compute {_cpu(case)} of their time, mostly in {stage}",
            f"Make {what} cheaper: decode smaller, cache what repeats, native or batched transforms, or move them to the device.",
            None,
            case.at_most("compute"),
        )
    )
    crowd = case.causes.told("runq_share")
    if crowd is not None and (crowd.value or 0.0) > CROWDED and case.causes.told("foreign_cpus") is not None:
        found.append(_neighbours(case))
    return found


def _bandwidth(case: Case) -> list[Finding]:
    return [
        case.finding(
            "memory-bandwidth",
            _told(case, "cpu_per_row_ratio"),
            "Move fewer bytes: keep uint8 until the device, crop before converting, avoid copies; fewer workers may do as well.",
            None,
            Gain(
                None,
                "how a memory bus shares itself cannot be computed from these numbers: try num_workers − 1",
            ),
        )
    ]


def _starved(case: Case) -> list[Finding]:
    if case.causes.culprit == "quota":
        quota = case.machine.quota
        amount = "" if quota is None else f" (now {quota:.3g} CPUs)"
        return [
            case.finding(
                "cpu-quota",
                _told(case, "throttled_share"),
                f"Raise the cgroup's CPU quota{amount}: docker --cpus, Kubernetes limits.cpu, Slurm --cpus-per-task."
                " More workers would not help.",
                None,
                case.at_most("starved"),
            )
        ]
    if case.causes.culprit == "own":
        return _oversubscribed(case)
    return [_neighbours(case)]


def _neighbours(case: Case) -> Finding:
    return case.finding(
        "cpu-neighbours",
        _told(case, "foreign_cpus") or _told(case, "runq_share"),
        "Give the job CPUs of its own (taskset, cpuset, another node), or end what runs beside it (see top, sorted by CPU).",
        None,
        case.at_most("starved"),
    )


def _oversubscribed(case: Case) -> list[Finding]:
    threads = max((active_threads(each) for each in case.loader.workers), default=1.0)
    usable = case.machine.usable or 1
    count = len(case.loader.workers)
    nothing = Gain(
        None, "the work stays the same; what taking turns cost cannot be computed from these numbers"
    )
    found = []
    if threads > 1:
        found.append(
            case.finding(
                "threads-per-worker",
                f"each of {count} workers computes with {threads:.1f} threads, and {usable} CPUs are there",
                "One thread per worker: call torch.set_num_threads(1) (cv2.setNumThreads(0), OMP_NUM_THREADS=1) in each.",
                Edit("worker_init_fn=lambda _: torch.set_num_threads(1)", None, case.loader.site),
                nothing,
            )
        )
    if count > usable:
        found.append(
            case.finding(
                "fewer-workers",
                f"{count} workers on {usable} CPUs",
                "As many workers as CPUs do the same work, with less memory and fewer switches.",
                case.edit("num_workers", usable),
                nothing,
            )
        )
    found.append(
        case.finding(
            "cheaper-samples",
            f"{_told(case, 'wanted_cpus')}",
            "The CPUs are full with this job's own work: make a sample cheaper, or get more CPUs.",
            None,
            case.at_most("starved", "compute"),
        )
    )
    return found


def _head_of_line(case: Case) -> list[Finding]:
    found = []
    blamed = [each for each in case.loader.slowest if each.blamed_ns]
    if blamed:
        total_ns = case.loader.totals.wait_ns + case.loader.totals.step_ns
        share = min(1.0, sum(each.blamed_ns for each in blamed) / max(1, total_ns))
        names = ", ".join(str(each.index)[:20] for each in blamed[:4])
        found.append(
            case.finding(
                "slow-samples",
                f"samples {names} held finished batches back",
                "Look at these samples: a large file, a retry, a cold cache. Make them cheaper or leave them out.",
                None,
                Gain(share, f"what these {len(blamed)} samples are to blame for", at_most=True),
            )
        )
    factor = case.option("prefetch_factor")
    if isinstance(factor, int):
        found.append(
            case.finding(
                "deeper-window",
                f"later batches were ready during {case.causes.share('head_of_line'):.0%} of the waiting",
                "Make more batches ahead, so that a slow one is begun earlier.",
                case.edit("prefetch_factor", 4 * factor),
                Gain(None, "depends on how slow batches are spread; bounded by what is blamed on order"),
            )
        )
    if case.option("in_order") is not False:
        found.append(
            case.finding(
                "any-order",
                f"later batches were ready during {case.causes.share('head_of_line'):.0%} of the waiting",
                "If the order of batches does not matter, take them as they are done.",
                case.edit("in_order", False),
                case.at_most("head_of_line"),
            )
        )
    return found


def _parent(case: Case) -> list[Finding]:
    stage = next(iter(case.causes.stages("parent")), "open")
    code, advice = _PARENT[stage if stage in _PARENT else "open"]
    share = case.causes.stages("parent").get(stage, 0) / max(1, case.causes.wait_ns)
    evidence = f"{share:.0%} of the waiting is the training process itself, in {stage}"
    return [case.finding(code, evidence, advice, None, case.at_most("parent"))]


_PARENT = {
    "plan": ("slow-sampler", "Make the sampler cheaper: compute the order once per epoch (torch.randperm), yield plain ints."),
    "open": (
        "heavy-batches",
        "Return tensors, or numpy arrays, from collate_fn: thousands of Python objects are unpickled in the training process.",
    ),
    "pin": ("slow-pinning", "Fewer, larger tensors per batch pin faster; pin_memory=False if the device is not waiting for it."),
    "wake": ("late-wake", "The training process is busy elsewhere: threads of its own that hold the GIL, or no free CPU."),
}  # fmt: skip
"""By stage: the finding, and what to do."""


def _start_up(case: Case) -> list[Finding]:
    epochs = case.loader.totals.epochs
    first_ns = case.loader.totals.first_batch_ns
    evidence = (
        "the first batch's time was not measured"
        if first_ns is None
        else f"first batch after {first_ns / 1e9:.1f} s"
    )
    found = []
    if epochs > 1 and case.option("persistent_workers") is False and case.option("num_workers"):
        share = (case.causes.stall or 0.0) * case.causes.share("start_up") * (epochs - 1) / epochs
        found.append(
            case.finding(
                "persistent-workers",
                f"workers were started {epochs} times",
                "Keep them over epochs.",
                case.edit("persistent_workers", True),
                Gain(share, f"{epochs - 1} of {epochs} starts fall away"),
            )
        )
    found.append(
        case.finding(
            "slow-start",
            evidence,
            "Move work out of worker_init_fn and the dataset's first access: open files lazily, import less, share large data.",
            None,
            Gain(None, "a start is paid once per run, or epoch: the longer it lasts the less it matters"),
        )
    )
    return found


def _gil(case: Case) -> list[Finding]:
    return [
        case.finding(
            "use-processes",
            _told(case, "late_wake_us"),
            "Processes do not share an interpreter's lock; threads are for native code and for waiting.",
            case.edit("executor", "process"),
            Gain(None, "how much of the work is Python's cannot be told from outside: try it"),
        )
    ]


def _unknown(case: Case) -> list[Finding]:
    return [
        case.finding(
            "no-readings",
            "no CPU times of the workers",
            "Run it where /proc is readable, or with stoker's DataLoader (stoker run), to learn what the workers do.",
        )
    ]


_BY_CAUSE: dict[str, Callable[[Case], list[Finding]]] = {
    "io": _io, "compute": _compute, "bandwidth": _bandwidth, "starved": _starved, "head_of_line": _head_of_line,
    "parent": _parent, "start_up": _start_up, "gil": _gil, "unknown": _unknown,
}  # fmt: skip


def _more_workers(case: Case, *, waiting: bool) -> list[Finding]:
    """More workers, where they would help; an empty list where not."""
    now = pace(case.loader, case.machine, case.causes)
    most = most_workers(case.machine, waiting=waiting)
    if now is None or most is None:
        return []
    count = wanted_workers(now, most=most)
    if count <= now.workers:
        return []
    gain = gain_of_workers(now, count, case.causes.share("io", "compute", "unknown"))
    doing = f"{now.workers} workers take" if now.workers else "the training process takes"
    evidence = f"{doing} {now.batch_s * 1000:.3g} ms for a batch, a step takes {now.step_s * 1000:.3g} ms"
    why = "waiting scales past the cores" if waiting else "computing scales up to the cores"
    return [
        case.finding("more-workers", evidence, f"More workers: {why}.", case.edit("num_workers", count), gain)
    ]


def _switch(case: Case) -> Finding:
    """stoker's loader in place of torch's, with what may be expected of it."""
    own = ("parent", "start_up", "head_of_line")
    share = case.causes.share(*own)
    if share < 0.1:
        gain = Gain(None, "the samples' own work stays what it is: no gain is promised")
    else:
        gain = case.at_most(*own)
    return case.finding(
        "stoker-loader",
        f"{share:.0%} of the waiting is the loader's own: parent, start-up, order",
        "Try stoker's DataLoader, without an edit: stoker run in place of python.",
        Edit("from stoker import DataLoader", "from torch.utils.data import DataLoader"),
        gain,
    )


def _told(case: Case, code: str) -> str:
    found = case.causes.told(code)
    return "" if found is None else found.text


def _cpu(case: Case) -> str:
    return _share_of(case, "cpu_ns")


def _off(case: Case) -> str:
    return _share_of(case, "off_ns")


def _share_of(case: Case, column: str) -> str:
    metered_ns = sum(each.metered_ns for each in case.loader.workers)
    if not metered_ns:
        return "an unknown share"
    return f"{sum(getattr(each, column) for each in case.loader.workers) / metered_ns:.0%}"
