"""Workers run out of memory.

What it finds
-------------
Before the run: a worker whose own memory grows with every sample, so much that all workers together need more than
there is. The usual reason is a cache on the dataset, which the finding names. Copies of the parent's memory are STK601;
undelivered batches are STK604. Afterwards: `killed by signal: Killed`, which appears when the kernel ends a process for
lack of memory.

Why it hurts
------------
The kernel, or the cgroup of the container, kills the largest process: a worker, or the trainer itself. That process
raises nothing, and torch's loader can only say that it died. Only the worker itself sees its cache: with eight workers
each sample is cached up to eight times, and all of it is lost at the end of the epoch unless workers persist.

Example
-------
```text
RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.
```

Fix
---
Bound the cache (`functools.lru_cache(maxsize=1000)`), or fill it once before the workers start and wrap it:
`stoker.share(dataset)`. Then fewer workers, a smaller `prefetch_factor`, smaller batches; or a higher limit of the
container. `dmesg` and `memory.events` of the cgroup say which process was killed, and why. stoker's loader restarts a
killed worker, makes its batch again, and says "out of memory" with the limit and what was used.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding, counted, size
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.growth import GrowthFacts, MemoryTrend, forecast
from stoker._tools.doctor.facts.host.machine import MachineFacts
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.wording import FEEDING, IN_WORKER, LOADER, PIDS, told

_MUCH = 0.5
"""Share of what can still be taken, beyond which it is worth a word that all of it fits."""
_LEAST_SEEN_BYTES = 4 << 20
"""Growth that must be seen before it is extrapolated, when nothing is known that keeps it: an allocator that settles takes less."""
_KEPT = 0.2
"""Items that a container gains for each sample, from which on it is what keeps them."""


def examine(growth: GrowthFacts, target: TargetFacts) -> Iterator[Finding]:
    """Memory of its own that a worker makes without an end."""
    loader = target.loader
    if not loader.num_workers or growth.available_bytes is None or not growth.grows_steadily:
        return
    if not _keeps(growth):
        return
    available = growth.available_bytes // growth.ranks
    samples = loader.samples if loader.samples is not None else target.length
    ahead = forecast(
        MemoryTrend(growth.own_slope_bytes),
        workers=loader.num_workers,
        batch=loader.batch_size or 1,
        samples=samples,
        # A cache is full when every sample was seen, which an unnamed leak never is.
        persistent=loader.persistent_workers
        and (not growth.growing or growth.own_slope_bytes * (samples or 0) * loader.num_workers > available),
        available=available,
    )
    if ahead.ends_at is None and ahead.total_bytes < _MUCH * available:
        return
    cache = max(growth.growing, key=lambda each: each.items_after - each.items_before, default=None)
    evidence = f"a worker grows by {size(growth.own_slope_bytes)} of new memory a sample, over {growth.samples} samples"
    if cache is not None:
        evidence += (
            f"; {cache.path} went from {cache.items_before:,} items to {cache.items_after:,} meanwhile"
        )
    evidence += f". {counted(loader.num_workers, 'worker')} can still take {size(available)}"
    if ahead.ends_at is not None:
        of = f" of {ahead.steps:,}" if ahead.steps and ahead.ends_at <= ahead.steps else ""
        evidence += f": memory ends at step ~{ahead.ends_at:,}{of}"
    else:
        evidence += f", and an epoch makes {size(ahead.total_bytes)}"
    yield CHECK.finding(
        evidence,
        f"Bound {cache.path}, or fill it before the workers start and wrap the dataset: stoker.share(dataset)."
        if cache is not None
        else "Find what the dataset keeps from sample to sample (a cache of a library, a list that is appended to) and bound it.",
        severity="high" if ahead.ends_at is not None else "moderate",
        where=cache.path if cache is not None else "dataset",
        numbers={
            "slope_bytes_per_sample": round(growth.own_slope_bytes),
            "total_bytes": ahead.total_bytes,
            "available_bytes": available,
            "ends_at_step": ahead.ends_at,
            "steps": ahead.steps,
            "workers": loader.num_workers,
        },
    )


def _keeps(growth: GrowthFacts) -> bool:
    """Whether the growth goes on for certain: a container gains items with the samples, or it was much and did not slow down."""
    gained = sum(each.items_after - each.items_before for each in growth.growing)
    if gained >= _KEPT * growth.samples:
        return True
    return growth.own_slope_bytes * growth.samples >= _LEAST_SEEN_BYTES and not growth.levels_off


def here(machine: MachineFacts) -> str:
    """How much there is for all workers together."""
    limit_bytes, used_bytes = machine.cgroup_limit_bytes, machine.cgroup_used_bytes
    if limit_bytes is not None and used_bytes is not None and limit_bytes == machine.memory_bytes:
        return f"the cgroup may take {size(limit_bytes)} and takes {size(used_bytes)} now"
    if machine.memory_bytes is None or machine.available_bytes is None:
        return ""
    return f"there are {size(machine.memory_bytes)} of memory, of which {size(machine.available_bytes)} can be taken now"


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    examine=examine,
    here=here,
    marks=(
        Mark(
            rf"worker(?: {PIDS})? is killed by signal: (?:[Kk]illed|9\b|SIGKILL|Unknown signal: 9)",
            never=(r"the kernel counts no OOM kill",),
            weight=24,
        ),
        Mark(r"out of memory: the kernel's OOM killer struck", weight=30),
        Mark(rf"DataLoader worker {PIDS} exited unexpectedly with exit code (?:-9|137)\b", weight=24),
        Mark(
            r"(?:Out of memory|Memory cgroup out of memory): Kill(?:ed)? process \d+|oom-kill:|oom[_-]kill event|"
            r"OOMKilled|[Ee]xceeded (?:job |step )?memory limit|task \d+: Out Of Memory",
            also=(LOADER,),
            weight=25,
        ),
        Mark(
            r"DefaultCPUAllocator: can't allocate memory|not enough memory: you tried to allocate",
            also=(IN_WORKER,),
            weight=24,
        ),
        Mark(r"^(?:\w+\.)*(?:_?ArrayMemoryError|MemoryError)\b", also=(IN_WORKER,), weight=22),
        Mark(
            r"\(-4:Insufficient memory\)|Failed to allocate \d+ bytes in function",
            also=(IN_WORKER,),
            weight=24,
        ),
        Mark(r"std::bad_alloc", also=(r"is killed by signal: Abort",), weight=24),
        told(r"(?<!I[ ])(?<!we[ ])killed\b(?! (?:by signal|the|it)\b)", weight=6),
        told(r"(?:runs?|ran|running) out of (?:ram|cpu memory|main memory|system memory)\b"),
        Mark(r"Can't pickle <class 'MemoryError'>", also=(FEEDING,), weight=30),
        Mark(r"Caught (?:_ArrayMemoryError|MemoryError) in DataLoader worker process", weight=24),
    ),
    rows=(8,),
)
