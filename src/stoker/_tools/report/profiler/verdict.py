"""Judges traces: whether devices wait for data, and if not, what they wait for. Pure; ``screen`` shows it."""

from __future__ import annotations

from dataclasses import dataclass

from stoker._tools.report.profiler import advice
from stoker._tools.report.profiler.ranks import Analysis
from stoker._tools.report.verdict.codes import VerdictFinding
from stoker._tools.report.verdict.verdict import Cost, cost

PARTS = {
    "compute": ("at work", "in operations"),
    "comm": ("in collectives only", ""),
    "copy": ("in copies from the host only", ""),
    "other": ("in other copies and fills", ""),
    "turnaround": ("between kernels that were launched", ""),
    "data": ("waiting for data", "waiting for data"),
    "sync": ("idle after a synchronisation", ""),
    "launch": ("waiting for the host's operations", ""),
    "host": ("waiting for other work of the host", "outside of operations"),
}
"""Parts of the wall in words: of a device, and of a training loop without one."""


@dataclass(frozen=True, slots=True)
class Share:
    """One part of the wall."""

    part: str
    words: str
    ns: int
    share: float


@dataclass(frozen=True, slots=True)
class TraceVerdict:
    """The answer for the traces of one run."""

    headline: str
    severity: str
    """Of the waiting for data: none, low, moderate, high; unknown without a DataLoader in the traces."""
    on_device: bool
    data_share: float | None
    """Of the wall; None: the traces do not show a DataLoader."""
    hidden_ns: int
    """In the loader's ``__next__`` while the device had work."""
    shares: tuple[Share, ...]
    why: tuple[str, ...]
    evidence: tuple[str, ...]
    findings: tuple[VerdictFinding, ...]
    cost: Cost | None
    notes: tuple[str, ...]


def judge(
    analysis: Analysis, *, price_per_hour: float | None = None, watts: float | None = None
) -> TraceVerdict:
    """Say what the traces show."""
    parts = analysis.parts
    wall_ns = parts.wall_ns
    shares = tuple(
        Share(part, words[0 if analysis.on_device else 1], ns, ns / wall_ns)
        for part, words in PARTS.items()
        if (ns := getattr(parts, f"{part}_ns"))
    )
    data = parts.data_ns / wall_ns if analysis.labelled else None
    findings = advice.findings(analysis)
    return TraceVerdict(
        headline=_headline(analysis, data, findings),
        severity="unknown" if data is None else advice.severity(data),
        on_device=analysis.on_device,
        data_share=data,
        hidden_ns=sum(each.hidden_ns for each in analysis.ranks),
        shares=shares,
        why=tuple(each.evidence for each in findings),
        evidence=advice.evidence(analysis),
        findings=findings,
        cost=None if data is None else cost(data, price_per_hour, watts),
        notes=tuple(analysis.notes),
    )


def _headline(analysis: Analysis, data: float | None, findings: tuple[VerdictFinding, ...]) -> str:
    who = "The device" if analysis.on_device else "The training loop"
    if analysis.on_device and max(each.devices for each in analysis.ranks) * len(analysis.ranks) > 1:
        who = "A device"
    worst = next((each for each in findings if each.code not in ("data-starved", "not-data")), None)
    other = f": {advice.NAMES[worst.code]}" if worst is not None else ""
    if analysis.late is not None and analysis.late.part == "data":
        late = analysis.late
        return f"The ranks wait {late.share:.0%} of the time for {late.rank}, which waits for data."
    if data is None:
        return f"The trace shows no DataLoader, so how long {who.lower()} waits for data is not known{other}."
    if data >= advice.SOME:
        return f"{who} waits for data {data:.0%} of the time."
    return f"Data is not the problem ({data:.1%} of the time){other}."
