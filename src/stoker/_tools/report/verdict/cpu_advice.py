"""Advice for workers that compute, or that would compute if they had a CPU. Pure."""

from __future__ import annotations

from stoker._record.causes.contention import active_threads
from stoker._record.causes.thresholds import CROWDED, LEAST_FOREIGN
from stoker._record.finding import Edit, Gain
from stoker._tools.report.verdict.case import AdviceCase, more_workers
from stoker._tools.report.verdict.codes import VerdictFinding


def compute(case: AdviceCase) -> list[VerdictFinding]:
    """Workers up to the CPUs, then cheaper samples."""
    found = more_workers(case, waiting=False)
    stage = _busiest(case) or next(iter(case.causes.stages("compute")), "fetch")
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
            f"{'workers compute' if case.loader.kind.workers else 'making a batch computes'} "
            f"{case.worker_share('cpu_ns')} of {'their' if case.loader.kind.workers else 'its'} time, mostly in {stage}",
            f"Make {what} cheaper: decode smaller, cache what repeats, native or batched transforms, or move them to the device.",
            None,
            case.at_most("compute"),
        )
    )
    crowd, foreign = case.causes.measurement("runq_share"), case.causes.measurement("foreign_cpus")
    taken = foreign is not None and (foreign.value or 0.0) >= LEAST_FOREIGN
    if taken and crowd is not None and (crowd.value or 0.0) > CROWDED:
        found.append(_other_processes(case))
    return found


def _busiest(case: AdviceCase) -> str | None:
    """Where workers spend their time: that is what to look at, in whatever stage the loop waits for them. None: not measured."""
    steps = case.loader.steps
    moments = [steps.get(name, ()) for name in ("received_ns", "fetched_ns", "collated_ns", "sent_ns")]
    sums = dict.fromkeys(("fetch", "collate", "hand_over"), 0)
    for row in zip(*moments, strict=True):
        if all(isinstance(each, int) and each for each in row):
            for stage, began_ns, ended_ns in zip(sums, row, row[1:], strict=False):
                sums[stage] += ended_ns - began_ns
    return max(sums, key=sums.__getitem__) if any(sums.values()) else None


def bandwidth(case: AdviceCase) -> list[VerdictFinding]:
    """Fewer bytes."""
    return [
        case.finding(
            "memory-bandwidth",
            case.evidence_text("cpu_per_row_ratio"),
            "Move fewer bytes: keep uint8 until the device, crop before converting, avoid copies; fewer workers may do as well.",
            None,
            Gain(
                None,
                "unknown: the record does not show how workers share the memory bus; try num_workers − 1",
            ),
        )
    ]


def starved(case: AdviceCase) -> list[VerdictFinding]:
    """Advise by who has the CPU: a quota, this job itself, or other programs."""
    if case.causes.culprit == "quota":
        quota = case.machine.quota
        amount = "" if quota is None else f" (now {quota:.3g} CPUs)"
        return [
            case.finding(
                "cpu-quota",
                case.evidence_text("throttled_share"),
                f"Raise the cgroup's CPU quota{amount}: docker --cpus, Kubernetes limits.cpu, Slurm --cpus-per-task."
                " More workers would not help.",
                None,
                case.at_most("starved"),
            )
        ]
    if case.causes.culprit == "own":
        return _oversubscribed(case)
    # Without workers the loop cannot even use the time of its own steps to make the next batch.
    alone = not case.loader.kind.workers
    return [_other_processes(case), *(more_workers(case, waiting=False) if alone else [])]


def _other_processes(case: AdviceCase) -> VerdictFinding:
    """CPUs of its own."""
    return case.finding(
        "cpu-neighbours",
        case.evidence_text("foreign_cpus") or case.evidence_text("runq_share"),
        "Give the job CPUs of its own (taskset, cpuset, another node), or end what runs beside it (see top, sorted by CPU).",
        None,
        case.at_most("starved"),
    )


def _oversubscribed(case: AdviceCase) -> list[VerdictFinding]:
    """Fewer threads, fewer workers."""
    threads = max((active_threads(each) for each in case.loader.workers), default=1.0)
    usable = case.machine.usable or 1
    count = len(case.loader.workers)
    nothing = Gain(None, "unknown: the record does not show what switching between threads costs")
    found = []
    if threads > 1:
        found.append(
            case.finding(
                "threads-per-worker",
                f"each of {count} workers computes with {threads:.1f} threads, on {usable} CPUs",
                "Use one thread per worker: call torch.set_num_threads(1) (cv2.setNumThreads(0), OMP_NUM_THREADS=1) in each.",
                Edit("worker_init_fn=lambda _: torch.set_num_threads(1)", None, case.loader.site),
                nothing,
            )
        )
    if count > usable:
        found.append(
            case.finding(
                "fewer-workers",
                f"{count} workers on {usable} CPUs",
                "Use as many workers as CPUs: they do the same work with less memory and fewer switches.",
                case.edit("num_workers", usable),
                nothing,
            )
        )
    found.append(
        case.finding(
            "cheaper-samples",
            f"{case.evidence_text('wanted_cpus')}",
            "The CPUs are full with this job's own work: make a sample cheaper, or get more CPUs.",
            None,
            case.at_most("starved", "compute"),
        )
    )
    return found


def gil(case: AdviceCase) -> list[VerdictFinding]:
    """Processes."""
    return [
        case.finding(
            "use-processes",
            case.evidence_text("late_wake_us") or case.evidence_text("gil_full"),
            "Use processes: each has an interpreter lock of its own. Threads suit native code and waiting.",
            case.edit("executor", "process"),
            Gain(None, "unknown: the record does not show how much of the work is Python code; try it"),
        )
    ]
