"""Samples for a cache are random.

What it finds
-------------
`stoker.cache` made a few samples in two processes under two seeds, and they differ or draw random numbers. Or a function under
`stoker.cached` drew, or its first results differ: every process makes those twice.

Why it hurts
------------
A cache would freeze one result of each random transform: every epoch would see the same crop of the same picture. That is no
error anywhere, only a worse model.

Example
-------
```text
stoker.errors.RandomSamples: the samples of ImageFolder are random: dataset.transform.transforms[0] (RandomResizedCrop) draws
random numbers, so the cache would freeze one of its results for ever.
Cache what is the same each time, and the rest runs anew:
    dataset = stoker.cache(dataset, before="transform")
```

Fix
---
Write the line that the message shows. `before="transform"` keeps what comes before the first random step.
`stoker.cached(function)` keeps the output of a decoder.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    marks=(Mark(r"stoker\.errors\.RandomSamples|^RandomSamples:", weight=30),),
)
