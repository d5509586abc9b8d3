"""A cache lies inside another cache.

What it finds
-------------
Samples are kept by one cache, and a part of the same samples by another one inside of it: a `stoker.cached` decoder in a
dataset that `stoker.cache` wraps, a dataset that was wrapped twice, a caching dataset of a library in a cached one.

Why it hurts
------------
Once the outer cache has a sample, nobody asks the inner one for it again. So the inner entries take memory and are never read.
With both budgets full, samples that the outer cache could have kept are made anew in every epoch.

Example
-------
```python
dataset.loader = stoker.cached(dataset.loader)     # keeps every decoded picture
dataset = stoker.cache(dataset)                    # and every sample made of them
```

Fix
---
Keep one of the two. If nothing in a sample is random, keep the outer one, which saves more work:

```python
dataset = stoker.cache(dataset)
```

If samples are augmented at random, keep what comes before the random step:

```python
dataset.loader = stoker.cached(dataset.loader)
```
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding, counted
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.target import FoundCache, TargetFacts


def examine(target: TargetFacts) -> Iterator[Finding]:
    """Caches of which one lies in another."""
    inner = [each for each in target.caches if each.inside is not None]
    if not inner:
        return
    by_path = {each.path: each for each in target.caches}
    first = inner[0]
    outer = by_path.get(first.inside or "", first)
    more = f", and {counted(len(inner) - 1, 'other')} like it" if len(inner) > 1 else ""
    yield CHECK.finding(
        f"{first.path} ({first.kind}) lies inside {outer.path} ({outer.kind}){more}: what it keeps is read again only when the "
        "outer cache has no room",
        f"Remove {_spare(first)}, or {outer.kind} around it: one of the two is enough.",
        where=first.path,
        numbers={"caches": len(target.caches), "nested": len(inner)},
    )


def _spare(inner: FoundCache) -> str:
    return (
        f"{inner.kind} from {inner.path}"
        if inner.kind.startswith("stoker.")
        else f"{inner.path} ({inner.kind})"
    )


CHECK = Check(__name__, __doc__, severity="moderate", examine=examine)
