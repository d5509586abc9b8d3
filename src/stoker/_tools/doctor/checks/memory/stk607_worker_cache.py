"""Every worker fills a cache of its own.

What it finds
-------------
A container on the dataset grew in a worker while it fetched samples, by about one item a sample. It is a cache: a dict of
decoded images, a list that results are appended to. The doctor counts what it would hold in all workers at the end of an
epoch.

Why it hurts
------------
A worker is a process. What it writes into the dataset's dict stays in that process: the other workers, the other ranks and
the training process do not see it. Four workers keep four caches, and each sample is made again by each of them. Without
`persistent_workers=True` the caches are also thrown away at the end of every epoch, so nothing is ever gained.

Example
-------
```python
class Scans(Dataset):
    def __init__(self, paths):
        self.paths, self.seen = paths, {}

    def __getitem__(self, index):
        if index not in self.seen:
            self.seen[index] = decode(self.paths[index])     # one dict in every worker, and none of them lasts
        return self.seen[index]
```

Fix
---
Remove the container, and let all workers, ranks and epochs of the machine fill one store:

```python
class Scans(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __getitem__(self, index):
        return decode(self.paths[index])

    def __len__(self):
        return len(self.paths)

scans = stoker.cache(Scans(paths), budget="8GiB")
```

If the decoded samples are quick to load, load them once, before the loader is made, and share them with all workers:

```python
class Scans(Dataset):
    def __init__(self, paths):
        self.scans = stoker.share([decode(path) for path in paths])

    def __getitem__(self, index):
        return self.scans[index]
```

If they do not fit, write them to a file once and map it: `numpy.load("scans.npy", mmap_mode="r")`.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding, counted, size
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.growth import GrowingContainer, GrowthFacts
from stoker._tools.doctor.facts.target import TargetFacts

_LEAST_SHARE = 0.5
"""A cache gets an item from most samples. Counters and lists of errors get fewer."""


def examine(growth: GrowthFacts, target: TargetFacts) -> Iterator[Finding]:
    """The container that grew most, if it grew with the samples."""
    loader = target.loader
    fetched = growth.warm_up + growth.samples
    cache = max(growth.growing, key=_grown, default=None)
    if not loader.num_workers or cache is None or _grown(cache) < _LEAST_SHARE * fetched:
        return
    lost = (
        "" if loader.persistent_workers else ", and the cache is lost with the worker at the end of the epoch"
    )
    bytes_ = growth.own_slope_bytes * (target.length or 0)
    copies = loader.num_workers * growth.ranks
    every = f", {size(copies * bytes_)} in all {copies}" if copies > 1 else ""
    kept = f"; a full one would take about {size(bytes_)} in each worker{every}" if bytes_ > 0 else ""
    yield CHECK.finding(
        f"{cache.path} went from {cache.items_before:,} items to {cache.items_after:,} while one worker fetched "
        f"{counted(fetched, 'sample')}. Each of {counted(loader.num_workers, 'worker')} fills its own{kept}{lost}",
        f"Remove {cache.path}, and keep the samples in one store for all workers: dataset = stoker.cache(dataset). "
        "If they are quick to load, stoker.share([...]) of all of them does, too.",
        severity="moderate" if loader.num_workers > 1 or not loader.persistent_workers else "low",
        where=cache.path,
        numbers={
            "items_before": cache.items_before,
            "items_after": cache.items_after,
            "samples": fetched,
            "workers": loader.num_workers,
            "bytes_per_worker": round(bytes_),
            "bytes_of_all": round(copies * bytes_),
        },
    )


def _grown(each: GrowingContainer) -> int:
    return each.items_after - each.items_before


CHECK = Check(__name__, __doc__, severity="moderate", examine=examine)
