"""The Ray cluster has fewer free CPUs than the loader has workers.

What it finds
-------------
Each remote worker asks Ray for a CPU (`stoker.Ray(num_cpus=1)`). The free CPUs of all nodes are fewer than `num_workers`, or there
are none.

Why it hurts
------------
The loader goes on with the workers that found a CPU; the others wait in Ray's queue. It is then slower than it could be, and with
no CPU at all the first batch waits until `stoker.Ray(wait_s=60)` has passed.

Example
-------
`num_workers=32` on a cluster with 8 CPUs, 6 of them free: six workers start, and the others wait.

Fix
---
Ask for as many workers as there are CPUs, add nodes, or end what holds them (`ray status` shows it). `stoker.Ray(num_cpus=0.5)`
puts two workers on a CPU, for samples that mostly wait. `stoker.Ray(wait_for_all=True, wait_s=600)` waits for CPUs that are to
become free.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.host.cluster import ClusterFacts
from stoker._tools.doctor.facts.target import TargetFacts


def examine(cluster: ClusterFacts, target: TargetFacts | None = None) -> Iterator[Finding]:
    """Compares the free CPUs with the loader's workers; without a loader, with one."""
    if cluster.failure:
        return
    assumed = target is None or target.assumed
    wanted = 1 if target is None or assumed else target.loader.num_workers
    free = int(cluster.free_cpus)
    if free >= wanted:
        return
    workers = "the loader has" if not assumed else "there is to be at least"
    yield CHECK.finding(
        f"{free} of {cluster.cpus:g} CPUs are free on {len(cluster.nodes)} nodes; {workers} {wanted} "
        f"worker{'s' if wanted != 1 else ''}",
        "Ask for as many workers as there are free CPUs, or add nodes; `ray status` shows what holds the others."
        if cluster.cpus
        else "Start the nodes with CPUs for tasks: ray start --num-cpus=N",
        severity="high" if free == 0 else "moderate",
        where="num_workers",
        numbers={"free": free, "cpus": cluster.cpus, "wanted": wanted},
    )


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    examine=examine,
    marks=(
        Mark(r"cannot be scheduled right now\. It requires \{.{0,60}CPU", weight=14),
        Mark(r"Insufficient resources: .{0,80}CPU", weight=8),
    ),
)
