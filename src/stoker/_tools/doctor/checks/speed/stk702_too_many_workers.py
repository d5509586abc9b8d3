"""More workers than CPUs, and samples that need the CPU.

What it finds
-------------
`num_workers` is more than the CPUs that this process can count on (affinity, quota, other local ranks) can keep busy. Samples
that mostly wait, for storage or a network, do not count: there more workers than CPUs are right.

Why it hurts
------------
Workers beyond the CPUs take turns. Nothing gets faster, and each costs start-up time, memory (11 MiB forked, 145 MiB spawned,
and its own `prefetch_factor` batches), and CPU time that the training loop needs itself.

Example
-------
```python
loader = DataLoader(ds, num_workers=16)      # 4 CPUs; a sample takes 8 ms, of which it computes 7.6
```

Fix
---
`num_workers` at the number of usable CPUs, or that divided by the share of a sample's time in which it computes: with 4 CPUs
and samples that compute a quarter of their time, 16. `stoker tune TARGET` measures it instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median, quantiles

from stoker._record.finding import Edit, Finding, counted, duration
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.host.machine import MachineFacts
from stoker._tools.doctor.facts.samples import SampleFacts
from stoker._tools.doctor.facts.speed import SpeedFacts
from stoker._tools.doctor.facts.target import LoaderArguments, TargetFacts

_FEW = 4
"""Samples below which a share of CPU time says nothing."""
_LEAST_S = 1e-4
"""Samples quicker than this are over before a clock of CPU time has moved."""


def examine(
    machine: MachineFacts,
    target: TargetFacts,
    samples: SampleFacts | None = None,
    speed: SpeedFacts | None = None,
) -> Iterator[Finding]:
    """Against the CPUs, divided by the share of time in which a sample really computes, where that was measured."""
    if machine.cpus is None or target.assumed:
        return
    usable = machine.cpus.usable
    share = _computing(samples)
    useful = max(usable, math.ceil(usable / (share or 1.0)))
    for loader in (target.loader, *target.others):
        if loader is target.loader and speed is not None and speed.always_inline:
            continue  # STK701 advises to have no workers at all
        if loader.num_workers > max(useful, usable + 1):  # one more than CPUs is a matter of taste
            yield _finding(loader, machine, samples if loader is target.loader else None, share, useful)


def _finding(
    loader: LoaderArguments,
    machine: MachineFacts,
    samples: SampleFacts | None,
    share: float | None,
    useful: int,
) -> Finding:
    assert machine.cpus is not None
    severity = "low"
    if samples is None or not samples.sample_s:
        what = "what its samples cost was not measured"
    elif share is None:
        what = "its samples are too quick, or were too few, to tell what share of their time they compute"
    else:
        what = f"a sample takes {duration(median(samples.sample_s))} and computes {share:.0%} of that"
        severity = "moderate" if loader.num_workers > 2 * useful else "low"
    return CHECK.finding(
        f"{counted(loader.num_workers, 'worker')} for {counted(machine.cpus.usable, 'CPU')} ({machine.cpus.reason}); {what}",
        f"num_workers={useful} keeps these CPUs busy; more workers take turns.",
        severity=severity,
        edit=Edit(f"num_workers={useful}", f"num_workers={loader.num_workers}", loader.site, kind="argument"),
        where="num_workers",
        numbers={
            "num_workers": loader.num_workers,
            "usable": machine.cpus.usable,
            "useful": useful,
            "computing_share": share,
        },
    )


def _computing(samples: SampleFacts | None) -> float | None:
    """The share of a sample's time in which it used a CPU; None when it was not measured well enough.

    It is the upper quartile of all: on a busy machine some samples wait for a CPU, which looks like waiting for data.
    """
    if samples is None or len(samples.sample_s) < _FEW or len(samples.cpu_s) != len(samples.sample_s):
        return None
    if median(samples.sample_s) < _LEAST_S:
        return None
    shares = [
        cpu_s / wall_s for cpu_s, wall_s in zip(samples.cpu_s, samples.sample_s, strict=True) if wall_s > 0
    ]
    return min(1.0, max(0.01, quantiles(shares, n=4)[2]))


def here(machine: MachineFacts) -> str:
    """How many CPUs there are for them."""
    cpus = machine.cpus
    return "" if cpus is None else f"this process can count on {counted(cpus.usable, 'CPU')}: {cpus.reason}"


CHECK = Check(
    __name__,
    __doc__,
    severity="moderate",
    examine=examine,
    here=here,
    marks=(Mark(r"suggested max number of worker in current system is \d+", weight=3),),
    rows=(42, 43),
)
