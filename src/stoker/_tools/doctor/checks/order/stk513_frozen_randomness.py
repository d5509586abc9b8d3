"""A cache keeps random samples, so augmentations never change.

What it finds
-------------
A sample drew random numbers when it was first made in a worker, and came back unchanged from then on. Another worker, or
another epoch's, had another version of it. Something keeps finished samples: a dict on the dataset, a cache decorator, a
caching dataset of a library.

Why it hurts
------------
Random crops and flips are drawn once and then repeated in every epoch. The model sees far fewer variants than you think, and
which ones depends on the worker. Nothing fails: training only generalises worse.

Example
-------
```python
from functools import cache

class Pictures(Dataset):
    @cache
    def __getitem__(self, index):
        return augment(decode(self.paths[index]))     # the crop of the first epoch, for ever
```

Fix
---
Cache what is the same every time, and draw afterwards. `stoker.cached` keeps one copy for all workers and epochs:

```python
class Pictures(Dataset):
    def __init__(self, paths):
        self.paths, self.decode = paths, stoker.cached(decode)

    def __getitem__(self, index):
        return augment(self.decode(self.paths[index]))
```

`stoker.cache(dataset)` never does this by accident: it compares samples under two seeds first, and refuses random ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding, counted
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.randomness import RandomnessFacts


def examine(randomness: RandomnessFacts) -> Iterator[Finding]:
    """Samples that differ between seeds and not within a worker, and drew when they were first made."""
    if not randomness.frozen or not randomness.sources:
        return
    drawn = ", ".join(each.name for each in randomness.sources)
    yield CHECK.finding(
        f"{counted(len(randomness.frozen), 'sample')} drew from {drawn} when first made. A worker then got the same result "
        f"{randomness.times} times, and another seed gave another one",
        "Cache what comes before the random step, the decoder's output, and draw after reading it: stoker.cached(decode).",
        where=randomness.sources[0].name,
        numbers={"indices": len(randomness.frozen), "times": randomness.times},
    )


CHECK = Check(__name__, __doc__, severity="high", examine=examine)
