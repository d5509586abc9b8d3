"""Files that the dataset reads exist here and not on a node of the Ray cluster.

What it finds
-------------
The dataset holds paths, in attributes or lists. They exist on this machine, and a node that would make batches does not have them.
Of a long list, some are tried.

Why it hurts
------------
Remote workers open files on their own machine. Each of their samples then raises `FileNotFoundError`, at the first batch or, if
only some nodes lack the files, every now and then.

Example
-------
```python
class Pictures(Dataset):
    def __init__(self):
        self.root = "/local/nvme/pictures"     # the disk of this machine
```

Fix
---
Put the data where all nodes see it under the same path: a network file system, or a copy on each node. Or read from object
storage. `executor=stoker.Ray(resources={"has_pictures": 1})` keeps workers on nodes that were started with that resource.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding, counted
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.host.cluster import ClusterFacts

_SHOWN = 3


def examine(cluster: ClusterFacts) -> Iterator[Finding]:
    """One finding for each attribute whose paths a node lacks. Nodes without CPUs make no batches."""
    nodes = [each for each in cluster.nodes if each.cpus and not each.failure]
    for held in cluster.paths:
        lacking = [node.host for node in nodes if held.path in node.absent]
        if not lacking:
            continue
        hosts = ", ".join(lacking[:_SHOWN]) + ("…" if len(lacking) > _SHOWN else "")
        more = f" and {held.count - 1} more" if held.count > 1 else ""
        yield CHECK.finding(
            f"{held.at} names {held.path}{more}: it exists here, and not on "
            f"{counted(len(lacking), 'node')} of {len(nodes)} ({hosts})",
            "Make it visible there under the same path, or keep workers to nodes that have it: stoker.Ray(resources=…).",
            where=held.at,
            numbers={"path": held.path, "nodes": len(lacking), "of": len(nodes)},
        )


CHECK = Check(__name__, __doc__, severity="high", examine=examine)
