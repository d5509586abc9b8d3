"""The Ray cluster, or a node of it, does not answer.

What it finds
-------------
No cluster answers at the address, Ray is not installed, or a node that Ray counts as alive ran no small task within the doctor's
time.

Why it hurts
------------
Without a cluster the loader raises `ClusterError` at `iter()`. A node that takes tasks and does not answer holds up the batches
that it took, until the loader makes them elsewhere.

Example
-------
```text
stoker.errors.ClusterError: no Ray cluster answers at '10.0.0.1:6379': Failed to connect.
```

Fix
---
`ray status --address=HOST:PORT` on this machine says whether the head answers. Nodes need each other's ports: see "Configuring
ray ports" in Ray's manual. Restart a node that hangs: `ray stop`, then `ray start --address=HOST:PORT`.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.host.cluster import ClusterFacts


def examine(cluster: ClusterFacts) -> Iterator[Finding]:
    """The cluster as a whole, then each silent node."""
    if cluster.failure:
        yield CHECK.finding(
            f"no answer from a Ray cluster at {cluster.address!r}: {cluster.failure}",
            "Start one (ray start --head), or name another: stoker doctor TARGET --ray HOST:PORT",
            where="--ray",
            numbers={"address": cluster.address},
        )
    for node in cluster.nodes:
        if node.failure:
            yield CHECK.finding(
                f"{node.host} counts as alive, and did not run a task: {node.failure}",
                "Look at it with `ray status`, and restart its Ray if it hangs.",
                severity="moderate",
                where=node.host,
                numbers={"host": node.host},
            )


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    examine=examine,
    marks=(
        Mark(r"no Ray cluster answers at", weight=24),
        Mark(r"Could not find any running Ray instance|Unable to connect to GCS", weight=18),
        Mark(r"executor='ray' needs Ray, which is not installed", weight=24),
    ),
)
