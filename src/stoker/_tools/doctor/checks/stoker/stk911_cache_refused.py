"""A cache cannot keep this.

What it finds
-------------
`stoker.cache` or `stoker.cached` was given something that it cannot keep: an iterable dataset, one that is cached already, a
budget above the machine's memory or below one sample, or a transform that it cannot cut. The message says which, with numbers.

Why it hurts
------------
Nothing is kept, so every epoch makes every sample again. Nothing else was changed.

Example
-------
```text
stoker.errors.CacheRefused: Stream is iterable, and stoker.cache keeps samples by their index. Cache the function that decodes
a sample: decode = stoker.cached(decode)
```

Fix
---
Do what the last sentence of the message says. For a dataset without an index, or one that changes what its transform returns,
keep the output of the function that reads and decodes a file: `dataset.loader = stoker.cached(dataset.loader)`.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__,
    __doc__,
    severity="moderate",
    marks=(Mark(r"stoker\.errors\.CacheRefused|^CacheRefused:", weight=30),),
)
