"""The sampler gives indices that the dataset does not have.

What it finds
-------------
The doctor reads the sampler for a moment. It finds indices outside of `len(dataset)` that the dataset refuses, a
sampler that raises or gives nothing, and a sampler that is an iterator and lasts one epoch only. It also finds a
dataset without samples, or one whose `__len__` raises.

Why it hurts
------------
The error comes from a worker, in the middle of an epoch, as `IndexError` or `KeyError` of the dataset: the sampler is not in
the traceback. A sampler that is a generator gives one epoch and then none: the second epoch has zero steps, without an error.

Example
-------
```python
sampler = WeightedRandomSampler(weights, 1000)        # weights of the whole data
for batch in DataLoader(train_subset, sampler=sampler): ...      # IndexError: list index out of range
```

Fix
---
Make the sampler from the dataset the loader gets: `len(weights) == len(dataset)`, and subsets before samplers. Write a
sampler as a class with `__iter__`, not as a generator.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.sampler import SamplerFacts
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.wording import IN_WORKER


def examine(sampler: SamplerFacts, target: TargetFacts) -> Iterator[Finding]:
    """An index outside is a fault where the dataset refuses it."""
    outside = sampler.outside
    if outside is not None and outside.error:
        yield CHECK.finding(
            f"{sampler.name} gives index {outside.index} (as number {outside.position}), the dataset has {sampler.length} samples "
            f"and says {outside.error}; {sampler.outsiders} of {sampler.seen} indices lie outside",
            "Make the sampler from the dataset that the loader gets.",
            where="sampler",
            numbers={
                "index": outside.index,
                "position": outside.position,
                "length": sampler.length,
                "outside": sampler.outsiders,
                "seen": sampler.seen,
            },
        )
    if sampler.error.startswith("len(dataset)"):
        yield CHECK.finding(
            f"{sampler.error}: {sampler.name} cannot tell which indices there are",
            "Give the dataset a __len__ that returns how many samples there are, or the loader a sampler that needs none.",
            where="dataset.__len__",
            numbers={"seen": 0},
        )
    elif sampler.error:
        yield CHECK.finding(
            f"{sampler.name} raised after {sampler.seen} indices: {sampler.error}",
            "Correct the sampler: it runs in the training process, before any worker.",
            where="sampler",
            numbers={"seen": sampler.seen},
        )
    elif sampler.one_shot:
        yield CHECK.finding(
            f"the sampler is an iterator ({sampler.name}): it is used up after one epoch, and the next has no batches",
            "Write it as a class whose __iter__ starts again each time.",
            where="sampler",
        )
    elif sampler.empty and sampler.length == 0:
        yield CHECK.finding(
            "the dataset has no samples: its length is 0",
            "Check where it looks for them: a pattern or folder that matches nothing gives an epoch without batches, and no error.",
            where="dataset",
            numbers={"seen": 0, "length": 0},
        )
    elif sampler.empty and sampler.length:
        yield CHECK.finding(
            f"{sampler.name} gives no index, though the dataset has {sampler.length} samples",
            "Check how the sampler was made: an epoch has no batches.",
            where="sampler",
            numbers={"seen": 0, "length": sampler.length},
        )


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    examine=examine,
    marks=(
        Mark(r"num_samples should be a positive integer value, but got num_samples=0", weight=22),
        Mark(
            r"[Ii]ndex -?\d+ (?:is )?out of (?:bounds|range) for (?:the )?dataset",
            also=(IN_WORKER,),
            weight=12,
        ),
        Mark(r"IndexError: index \d+ is out of (?:bounds|range)", also=(IN_WORKER,), weight=4),
    ),
)
