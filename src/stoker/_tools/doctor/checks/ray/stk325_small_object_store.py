"""The object store of a Ray node is too small for the loader's batches.

What it finds
-------------
A node's object store holds less than the dataset's pickle and two batches together, or less than 64 MiB.

Why it hurts
------------
A remote worker puts each batch into the object store of its node until the trainer has fetched it, and the dataset lies there once.
A full store makes Ray write objects to disk (it calls this spilling), which is slow, or refuse them with `ObjectStoreFullError`.
The loader bounds the bytes on their way by `memory_budget`, but it cannot make a store larger.

Example
-------
```text
ray.exceptions.ObjectStoreFullError: Failed to put object ffff in object store because it is full.
```

Fix
---
`ray start --object-store-memory=BYTES` with more, up to 30 % of the node's RAM. In a container, `/dev/shm` has to be as large:
`docker run --shm-size=8g`. Or pass a smaller `memory_budget`, or smaller batches.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding, size
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.host.cluster import ClusterFacts
from stoker._tools.doctor.facts.samples import SampleFacts
from stoker._tools.doctor.facts.scan import ScanFacts

_LEAST_BYTES = 64 << 20
_AHEAD = 2
"""Batches that a worker has on their way: one that is made, one that is fetched."""


def examine(
    cluster: ClusterFacts, samples: SampleFacts | None = None, scan: ScanFacts | None = None
) -> Iterator[Finding]:
    """The smallest store of the nodes that have CPUs."""
    nodes = [each for each in cluster.nodes if each.cpus]
    if not nodes:
        return
    batch = (samples.batch_bytes or 0) if samples is not None else 0
    sent = 0 if scan is None else (scan.pickle_bytes or 0) + scan.tensor_bytes + scan.array_bytes
    smallest = min(nodes, key=lambda each: each.store_bytes / max(1.0, each.cpus))
    workers = max(1, int(smallest.cpus))
    needed = max(_LEAST_BYTES, sent + _AHEAD * workers * batch)
    if smallest.store_bytes >= needed:
        return
    contents = f"{_AHEAD} batches of {size(batch)} for each of {workers} workers" if batch else "some batches"
    yield CHECK.finding(
        f"the object store of {smallest.host} holds {size(smallest.store_bytes)}; the dataset ({size(sent)}) and {contents} "
        f"need {size(needed)}",
        f"Start the node with --object-store-memory={needed * 2}, or use fewer workers there.",
        severity="high" if batch and smallest.store_bytes < sent + batch else "moderate",
        where=smallest.host,
        numbers={
            "store_bytes": smallest.store_bytes,
            "needed_bytes": needed,
            "batch_bytes": batch,
            "dataset_bytes": sent,
        },
    )


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    examine=examine,
    marks=(
        Mark(r"ObjectStoreFullError: \S|ray\.exceptions\.ObjectStoreFullError", weight=20),
        Mark(r"OutOfDiskError: .{0,40}object store|object store .{0,20}is full", weight=16),
    ),
)
