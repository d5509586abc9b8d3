"""A node of the Ray cluster has other versions than this process.

What it finds
-------------
Python, ray, torch, numpy or stoker on a node of the cluster differ from those here, or stoker and torch are not installed there.

Why it hurts
------------
Ray refuses a driver whose Python or Ray is another one. The dataset and the batches travel as pickles of Python, torch and numpy:
another minor version may refuse them, or give other random numbers. Batches are then no longer those of local workers.

Example
-------
```text
RuntimeError: Version mismatch: The cluster was started with:
    Ray: 2.9.0
    Python: 3.10.12
```

Fix
---
Install the same versions on all nodes: from one lock file, or one container image. For packages that are missing on the nodes,
`executor=stoker.Ray(runtime_env={"pip": ["stoker[ray]==…"]})` lets Ray install them before the first batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.host.cluster import ClusterFacts, NodeFacts

_EXACT = frozenset({"python", "ray", "stoker"})
"""Ray compares the first two; ours has one format of messages per version."""
_NEEDED = frozenset({"stoker", "torch"})


def examine(cluster: ClusterFacts) -> Iterator[Finding]:
    """One finding for all nodes that differ in the same way."""
    by_difference: dict[tuple[str, ...], list[NodeFacts]] = {}
    for node in cluster.nodes:
        if node.versions and (different := _differences(cluster.versions, node.versions)):
            by_difference.setdefault(different, []).append(node)
    for different, nodes in by_difference.items():
        exact = any(name in _EXACT or not nodes[0].versions.get(name) for name in different)
        here = ", ".join(f"{name} {cluster.versions.get(name) or 'missing'}" for name in different)
        there = ", ".join(f"{name} {nodes[0].versions.get(name) or 'missing'}" for name in different)
        hosts = ", ".join(node.host for node in nodes[:3]) + ("…" if len(nodes) > 3 else "")
        yield CHECK.finding(
            f"this process has {here}; {len(nodes)} of {len(cluster.nodes)} nodes ({hosts}) have {there}",
            "Install the same versions on both sides, from one lock file or image.",
            severity="high" if exact else "moderate",
            where=hosts,
            numbers={"here": here, "there": there, "nodes": len(nodes)},
        )


def _differences(here: dict[str, str], there: dict[str, str]) -> tuple[str, ...]:
    return tuple(
        name
        for name in here
        if (here[name] != there.get(name)) and (here[name] or name in _NEEDED)
        if name in _EXACT or _minor(here[name]) != _minor(there.get(name, ""))
    )


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    examine=examine,
    marks=(
        Mark(r"Version mismatch: The cluster was started with", weight=24),
        Mark(r"No module named 'ray\.\w+", also=(r"\bcluster\b|ray://",), weight=10),
        Mark(r"runs another version of Ray or Python than this process", weight=24),
    ),
)
