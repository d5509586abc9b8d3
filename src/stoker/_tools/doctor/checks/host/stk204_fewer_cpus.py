"""Fewer CPUs may be used than `os.cpu_count()` says.

What it finds
-------------
Affinity, the cgroup's quota or other local ranks leave this process fewer CPUs than the machine has. The finding also
says whether the kernel stopped the cgroup because its quota was used up.

Why it hurts
------------
`num_workers=os.cpu_count()` starts a worker for each CPU of the machine. Beyond the quota they do not run side by side: the
kernel stops all of them, the training loop too, for the rest of each period (100 ms). torch's warning "suggested max number of
worker" knows the affinity, not the quota and not the ranks.

Example
-------
```python
# docker run --cpus=4 on a machine with 64
loader = DataLoader(ds, num_workers=os.cpu_count())     # 64 workers on 4 CPUs
```

Fix
---
Write the number that can be used, which `stoker doctor` shows: `num_workers=4` there. With several ranks on one
machine, divide by their number. Or ask for more CPUs (`--cpus`, `resources.limits.cpu`, `--cpus-per-task`). stoker's
warning about too many workers considers all three. `stoker tune TARGET` measures how many to take.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding, counted, duration
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.host.machine import MachineFacts
from stoker._tools.doctor.facts.target import TargetFacts

_OFTEN = 0.05
"""Share of periods cut short from which it is felt."""
_PERIODS = 100
"""Fewer say nothing: ten seconds."""


def examine(machine: MachineFacts, target: TargetFacts | None = None) -> Iterator[Finding]:
    """What is left of the machine's CPUs, and whether that was ever too little."""
    cpus = machine.cpus
    if cpus is None:
        return
    if cpus.usable < cpus.machine:
        # Somebody who took the machine's count is mistaken; for others the number is worth knowing.
        taken = target is not None and not target.assumed and target.loader.num_workers >= cpus.machine
        unwritten = target is None or target.assumed
        yield CHECK.finding(
            here(machine),
            f"Count on {counted(cpus.usable, 'CPU')} for workers: num_workers={cpus.usable} at most when samples cost CPU time.",
            severity="moderate" if taken else "low" if unwritten else "none",
            where="CPUs",
            numbers={
                "usable": cpus.usable,
                "machine": cpus.machine,
                "affinity": cpus.affinity,
                "quota": cpus.quota,
                "ranks": cpus.ranks,
            },
        )
    periods, throttled = machine.quota_periods, machine.throttled_periods
    if (
        cpus.quota is not None
        and periods
        and throttled
        and periods >= _PERIODS
        and throttled > _OFTEN * periods
    ):
        lost = "" if machine.throttled_s is None else f", {duration(machine.throttled_s)} in all"
        yield CHECK.finding(
            f"the cgroup's quota of {cpus.quota:.3g} CPUs was used up in {throttled} of {periods} periods "
            f"({throttled / periods:.0%}){lost}: everything in it stopped for the rest of each period",
            "Start fewer workers and threads, or raise the quota.",
            severity="moderate",
            where="cpu.stat",
            numbers={"periods": periods, "throttled": throttled, "throttled_s": machine.throttled_s},
        )


def here(machine: MachineFacts) -> str:
    """What is left of the CPUs."""
    cpus = machine.cpus
    if cpus is None or cpus.usable >= cpus.machine:
        return ""
    return f"os.cpu_count() says {cpus.machine}; this process can use {cpus.usable}: {cpus.reason}"


CHECK = Check(
    __name__,
    __doc__,
    severity="moderate",
    examine=examine,
    marks=(
        Mark(
            r"does not have many workers which may be a bottleneck|num_workers=0 may result in data loading bottlenecks",
            weight=1,
        ),
    ),
    here=here,
    rows=(42,),
)
