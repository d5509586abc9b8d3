"""The distributed sampler draws the same order in every epoch.

What it finds
-------------
A sampler that shuffles by its epoch number (`DistributedSampler` and those like it), and a script that never calls its
`set_epoch`.

Why it hurts
------------
The order is drawn from `seed + epoch`, so that all ranks draw the same one. The epoch is 0 until `set_epoch` changes
it: without `set_epoch` all epochs have the same order and the same batches. Training goes on, a little worse, and
nothing says so.

Example
-------
```python
sampler = DistributedSampler(dataset, shuffle=True)
loader = DataLoader(dataset, sampler=sampler, num_workers=4)
for epoch in range(90):
    for batch in loader: ...              # the same batches, 90 times
```

Fix
---
```python
for epoch in range(90):
    sampler.set_epoch(epoch)
    for batch in loader: ...
```

Lightning and Accelerate call it for you. `stoker.ElasticDistributedSampler` begins another epoch with every `iter()`.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.sampler import SamplerFacts
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.sources.script import read


def examine(sampler: SamplerFacts, target: TargetFacts) -> Iterator[Finding]:
    """High where the epochs' loop can be seen and has no call; else a reminder."""
    if not sampler.repeats:
        return
    script = read(target.source)
    if script is not None and (script.sets_epoch or script.framework):
        return
    seen = script is not None and script.has_epochs
    yield CHECK.finding(
        f"{sampler.name} draws its order from the epoch that set_epoch gives it, and "
        + (
            "the script loops over epochs without calling it: all have the same order"
            if seen
            else "nothing here calls it"
        ),
        "Call sampler.set_epoch(epoch) at the start of every epoch."
        if seen
        else "Make sure that the training loop calls sampler.set_epoch(epoch) at the start of every epoch.",
        severity="high" if seen else "low",
        where="sampler.set_epoch",
        edit=Edit("sampler.set_epoch(epoch)", site=target.loader.site or target.file, kind="shown"),
        numbers={"replicas": target.loader.replicas},
    )


CHECK = Check(__name__, __doc__, severity="high", examine=examine)
