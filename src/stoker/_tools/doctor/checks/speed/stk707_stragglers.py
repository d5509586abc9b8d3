"""A few samples take far longer than the others.

What it finds
-------------
Samples that took at least five times the median, each time they were made. They are so slow that the batches made ahead
run out. The finding names their indices. Samples that were slow only once are left out: the machine or a cold disk was
the reason.

Why it hurts
------------
torch gives batches to workers in turn and hands them over in that order. While one worker is at a slow sample, the
others finish what they were given, `prefetch_factor` batches each, and then wait. The training loop waits for the slow
one. More workers do not help.

Example
-------
```python
DataLoader(scans, batch_size=16, num_workers=8)      # one scan in 200 has 40 times the slices
```

Fix
---
A larger `prefetch_factor` lets the others go on meanwhile, at the price of memory. `in_order=False` takes whatever is ready,
in an order that is not reproducible. Or look at the samples themselves: cut the long ones, store the large ones smaller. With
stoker's loader idle workers pull the next batch, and the rows of a late batch are made by several workers at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from stoker._record.finding import Edit, Finding, duration
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.speed import SpeedFacts
from stoker._tools.doctor.facts.target import TargetFacts

_FEW = 0.1
"""Where more of them are slow, slow is the usual."""
_MOST_AHEAD = 16


def examine(speed: SpeedFacts, target: TargetFacts) -> Iterator[Finding]:
    """The slowest sample against what the other workers can make meanwhile."""
    loader = target.loader
    if not speed.slow or not loader.num_workers or loader.engine == "stoker" or speed.slow_share > _FEW:
        return
    batch_s = speed.rows * speed.sample_s
    slowest = speed.slow[0]
    if slowest.seconds < batch_s / 2:
        return
    factor = 2 if loader.prefetch_factor is None else loader.prefetch_factor
    ahead_s = factor * batch_s
    stalls = slowest.seconds > ahead_s and loader.in_order
    wanted = min(_MOST_AHEAD, math.ceil(slowest.seconds / batch_s) + 1)
    named = ", ".join(f"{each.index} ({duration(each.seconds)})" for each in speed.slow[:3])
    touched = 1 - (1 - speed.slow_share) ** speed.rows
    yield CHECK.finding(
        f"of {speed.sampled} samples {speed.slow_share:.1%} took far longer than the median of {duration(speed.sample_s)}: "
        f"{named}. {touched:.0%} of the batches have one, and are late by {duration(slowest.seconds)} where workers are "
        f"{duration(ahead_s)} ahead",
        f"Set prefetch_factor={wanted}, or use stoker's loader, where idle workers help with the batch that is late."
        if wanted > factor
        else "Look at these samples, or use stoker's loader, where idle workers help with the batch that is late.",
        severity="moderate" if stalls else "low",
        edit=Edit(
            f"prefetch_factor={wanted}",
            None if loader.prefetch_factor is None else f"prefetch_factor={factor}",
            loader.site,
            kind="argument",
        )
        if wanted > factor and not target.assumed
        else None,
        where=f"dataset[{slowest.index}]",
        numbers={
            "slowest_s": slowest.seconds,
            "median_s": speed.sample_s,
            "slow_share": speed.slow_share,
            "indices": ", ".join(str(each.index) for each in speed.slow),
            "ahead_s": ahead_s,
        },
    )


CHECK = Check(
    __name__,
    __doc__,
    severity="moderate",
    prevented="Idle workers pull the oldest batch, and rows of one that is late are made by several workers.",
    examine=examine,
    rows=(39,),
)
