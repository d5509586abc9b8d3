"""Turns the traces of a run into findings with advice, the most important first. Pure. Thresholds: docs/traces.md."""

from __future__ import annotations

from stoker._record.finding import Edit, Gain
from stoker._tools.report.profiler.analysis import RankAnalysis
from stoker._tools.report.profiler.ranks import Analysis, name
from stoker._tools.report.verdict.codes import VerdictFinding

SOME = 0.02
"""Of the wall: below, data is not the problem."""
_MODERATE, _HIGH = 0.05, 0.20
"""The cuts of TensorFlow's profiler."""
_SHORT_KERNEL_NS = 50_000
_SLOW_LAUNCH_NS = 50_000
"""A launch takes 5 to 10 microseconds on a host that has a CPU for it."""
_VERY_SLOW_LAUNCH_NS = 150_000
"""For the slowest tenth of them."""
_UNEVEN = 0.5
_SLOW_START = 10
"""A first call that took so many times the median waited for workers to start."""
_MOST_RANKS = 8

NAMES = {
    "exposed-copy": "copies to the device are not hidden behind its work",
    "launch-bound": "the host launches kernels more slowly than the device finishes them",
    "host-work": "the device waits for other work of the host",
    "host-full": "the host's CPUs are too busy to launch work in time",
    "host-sync": "the device idles because the host synchronises with it",
    "late-rank": "ranks wait for one that is late",
    "memory-growing": "memory grows from step to step",
}
"""Findings in a headline."""
_PART_NAMES = {
    "data": "waits for data", "compute": "computes", "launch": "waits for the host's operations", "host": "waits for the host",
    "sync": "idles after synchronisations", "copy": "copies from the host", "other": "copies",
    "turnaround": "is between kernels", "comm": "is in collectives",
}  # fmt: skip


def findings(analysis: Analysis) -> tuple[VerdictFinding, ...]:
    """Return the findings of all ranks together. What takes more of the time stands first; memory that grows stands last."""
    parts, wall_ns = analysis.parts, analysis.parts.wall_ns
    found: list[tuple[float, VerdictFinding]] = []

    def share(ns: int, least: float = _MODERATE) -> float:
        return ns / wall_ns if ns / wall_ns >= least else 0.0

    if analysis.labelled and (data := share(parts.data_ns, SOME)):
        found.append((data, _data(analysis, data)))
    if analysis.on_device:
        if copy := share(parts.copy_ns):
            found.append((copy, _copy(analysis, copy)))
        if sync := share(parts.sync_ns):
            found.append((sync, _sync(sync)))
        if host := share(parts.launch_ns + parts.host_ns):
            found.append((host, _host(analysis, host)))
    elif (uneven := _uneven(analysis)) and (compute := share(parts.compute_ns)):
        found.append((compute * uneven, _full(analysis, compute * uneven)))
    if analysis.late is not None:
        found.append((analysis.late.share, _late(analysis)))
    ordered = [each for _, each in sorted(found, key=lambda each: -each[0])]
    ordered += _growing(analysis)
    if not ordered and analysis.labelled:
        ordered.append(_nothing(analysis))
    return tuple(ordered)


def _data(analysis: Analysis, share: float) -> VerdictFinding:
    who = "The device has" if analysis.on_device else "The loop has"
    iterators = {each for rank in analysis.ranks for each in rank.iterators}
    call_ns = sum(each.call_ns for each in analysis.ranks)
    slow_starts = [
        each.first_call_ns
        for each in analysis.ranks
        if each.first_call_ns > _SLOW_START * (each.usual_call_ns or 0)
    ]
    evidence = f"{who} nothing to do for {share:.0%} of the time while next() of the DataLoader is under way."
    if analysis.on_device:
        hidden = sum(each.hidden_ns for each in analysis.ranks) / max(1, call_ns)
        evidence += f" Of the time in next(), {hidden:.0%} is hidden: the device had work."
    if sum(slow_starts) > call_ns / 2:
        evidence += f" Most of it, {_time(sum(slow_starts))}, is the first batch: workers starting."
    edit, text = None, "Run `stoker profile train.py`: it names the stage, the samples and the cause."
    if iterators == {"_SingleProcessDataLoaderIter"}:
        edit = Edit("num_workers=4", "num_workers=0")
        text = "Batches are made in the training process itself. `stoker tune train.py:loader` finds the number of workers to use."
    elif any(each.elsewhere for each in analysis.ranks):
        text += " The thread that calls the loader launches nothing, so it may only prefetch."
    return VerdictFinding(
        "data-starved",
        severity(share),
        evidence,
        text,
        edit,
        Gain(share, "all waiting for data that the trace shows", at_most=True),
    )


def _copy(analysis: Analysis, share: float) -> VerdictFinding:
    pageable = sum(each.pageable_bytes for each in analysis.ranks)
    pinned = sum(each.pinned_bytes for each in analysis.ranks)
    evidence = f"Copies from the host take {share:.0%} of the time while no kernel runs"
    gain = Gain(share, "all copies that now run alone", at_most=True)
    if pageable >= pinned:
        text = "With it, `.to(device, non_blocking=True)` returns at once and the copy runs beside kernels."
        evidence += f"; {_megabytes(pageable)} came from pageable memory."
        return VerdictFinding(
            "exposed-copy", severity(share), evidence, text, Edit("pin_memory=True", "pin_memory=False"), gain
        )
    text = "The memory is pinned already: copy the next batch on a stream of its own while this one is computed on."
    return VerdictFinding("exposed-copy", severity(share), evidence + ".", text, None, gain)


def _sync(share: float) -> VerdictFinding:
    return VerdictFinding(
        "host-sync",
        severity(share),
        f"For {share:.0%} of the time the device has nothing to do because the host waited for it to finish.",
        "Look for `.item()`, `.cpu()`, `print(loss)` and `synchronize()` in the loop; do them every hundredth step.",
        None,
        Gain(share, "all idle time of the device after a synchronisation", at_most=True),
    )


def _host(analysis: Analysis, share: float) -> VerdictFinding:
    """The device waits for the host, and not for data: because launching is slow, or much, or something else is done."""
    if _slow_launches(analysis):
        return _full(analysis, share)
    parts = analysis.parts
    kernels = sum(each.kernels for each in analysis.ranks)
    steps = sum(each.steps for each in analysis.ranks)
    kernel_ns = min((each.kernel_ns for each in analysis.ranks if each.kernel_ns), default=0)
    gain = Gain(share, "all time that the device waits for the host", at_most=True)
    if parts.launch_ns >= parts.host_ns and kernel_ns <= _SHORT_KERNEL_NS:
        per_step = f"{kernels / steps:.0f} kernels a step" if steps else f"{kernels} kernels"
        return VerdictFinding(
            "launch-bound",
            severity(share),
            f"For {share:.0%} of the time the device waits for the next launch: {per_step}, half of them "
            f"shorter than {_time(kernel_ns)}.",
            "Use fewer and larger kernels: `torch.compile(model, mode=\"reduce-overhead\")`, CUDA graphs, fused optimizers, "
            "larger batches.",
            None,
            gain,
        )  # fmt: skip
    if parts.launch_ns >= parts.host_ns:
        what = "operations on the host"
    else:
        what = "what the profiler does not see: Python or other libraries"
    return VerdictFinding(
        "host-work",
        severity(share),
        f"For {share:.0%} of the time the device waits for the host, most of it for {what}.",
        "Profile again with `with_stack=True`, and look at what the loop does in the gaps: metrics, logging, checkpoints, "
        "transforms outside of the loader.",
        None,
        gain,
    )


def _full(analysis: Analysis, share: float) -> VerdictFinding:
    signs = _slow_launches(analysis)
    if uneven := _uneven(analysis):
        signs = f"the same operations vary in length by {uneven:.0%} of their time"
    return VerdictFinding(
        "host-full",
        severity(share),
        f"The host seems to have no CPU left, {share:.0%} of the time: {signs}.",
        "Use fewer workers or threads: `stoker profile train.py` compares their demand with the available CPUs.",
        None,
        Gain(share, "all time that the device waits for the host", at_most=True),
    )


def _slow_launches(analysis: Analysis) -> str:
    """Say so if launches take longer than on a host that has a CPU for them; else return ""."""
    usual_ns = max((each.launch_call_ns or 0 for each in analysis.ranks), default=0)
    slow_ns = max((each.slow_launch_ns or 0 for each in analysis.ranks), default=0)
    if usual_ns >= _SLOW_LAUNCH_NS:
        return f"half of the launches take over {_time(usual_ns)} while the device is idle (usual: 10 µs)"
    if slow_ns >= _VERY_SLOW_LAUNCH_NS:
        return f"a tenth of the launches takes over {_time(slow_ns)} while the device is idle (usual: 20 µs)"
    return ""


def _late(analysis: Analysis) -> VerdictFinding:
    late = analysis.late
    assert late is not None
    why = f"It {_PART_NAMES[late.part]} more of the time than the others do: {late.more:.0%} more."
    return VerdictFinding(
        "late-rank",
        severity(late.share),
        f"The other ranks wait {late.share:.0%} of the time in collectives for {late.rank}. {why}",
        f"Look at {late.rank} first: run `stoker report` on its trace alone. All ranks wait for whatever it waits for.",
        None,
        Gain(late.share, "all time that the others wait for it", at_most=True),
    )


def _growing(analysis: Analysis) -> list[VerdictFinding]:
    found = [(each, name(rank, place)) for place, rank in enumerate(analysis.ranks) for each in rank.growths]
    if not found:
        return []
    worst, who = max(found, key=lambda each: each[0].bytes_per_step)
    where = worst.where + (f" of {who}" if len(analysis.ranks) > 1 else "")
    return [
        VerdictFinding(
            "memory-growing",
            "moderate",
            f"Memory of {where} grows by {_megabytes(worst.bytes_per_step)} a step, over {worst.steps} steps.",
            "Look for tensors that are kept from step to step: `total += loss` keeps its graph, `loss.item()` does not.",
        )
    ]


def _nothing(analysis: Analysis) -> VerdictFinding:
    busy = analysis.parts.compute_ns / analysis.parts.wall_ns
    who = "The device is" if analysis.on_device else "The loop is in operations"
    return VerdictFinding(
        "not-data",
        "none",
        f"{who} {'at work ' if analysis.on_device else ''}{busy:.0%} of the time, and no other part is worth changing.",
        "Leave the loader as it is: make the model's step cheaper.",
    )


def evidence(analysis: Analysis) -> tuple[str, ...]:
    """Measured lines under the table, the weightiest first."""
    lines = []
    first = analysis.ranks[0]
    calls = sum(each.calls for each in analysis.ranks)
    if calls:
        call_ns = sum(each.call_ns for each in analysis.ranks)
        names = ", ".join(dict.fromkeys(each for rank in analysis.ranks for each in rank.iterators))
        hidden_ns = sum(each.hidden_ns for each in analysis.ranks)
        hidden = (
            f", {hidden_ns / call_ns:.0%} of it hidden behind the device"
            if analysis.on_device and call_ns
            else ""
        )
        lines.append(f"{calls} calls of next() ({names}): {_time(call_ns / calls)} each{hidden}")
    if len(analysis.ranks) > 1:
        lines.append(_by_rank(analysis.ranks))
    if first.step_ns is not None:
        lines.append(
            f"{sum(each.steps for each in analysis.ranks)} profiled steps, {_time(first.step_ns)} each"
        )
    if first.kernels and first.kernel_ns is not None:
        lines.append(f"{first.kernels} kernels, {_time(first.kernel_ns)} each (medians)")
    if first.threads is not None and first.threads > 1.5:
        lines.append(f"{first.threads:.1f} threads in operations at a time")
    return tuple(lines)


def _by_rank(ranks: list[RankAnalysis]) -> str:
    shares = sorted(
        ((each.parts.data_ns / each.parts.wall_ns, name(each, place)) for place, each in enumerate(ranks)),
        reverse=True,
    )
    told = ", ".join(f"{who} {share:.0%}" for share, who in shares[:_MOST_RANKS])
    return f"Waiting for data by rank: {told}" + (", …" if len(shares) > _MOST_RANKS else "")


def _uneven(analysis: Analysis) -> float:
    """How uneven operations are, when they are uneven enough to tell something; else 0."""
    worst = max((each.uneven or 0.0 for each in analysis.ranks), default=0.0)
    return worst if worst >= _UNEVEN else 0.0


def severity(share: float) -> str:
    """How bad it is that so much of the wall goes there."""
    return "none" if share < SOME else "low" if share < _MODERATE else "moderate" if share < _HIGH else "high"


def _time(ns: float) -> str:
    for unit, scale in (("s", 1e9), ("ms", 1e6)):
        if ns >= scale:
            return f"{_number(ns / scale)} {unit}"
    return f"{_number(ns / 1000)} µs"


def _megabytes(count: int) -> str:
    return f"{_number(count / 1e6)} MB"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
