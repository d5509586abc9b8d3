"""Ranks get unequal numbers of batches.

What it finds
-------------
A stream that takes its share by rank, or a sampler of your own that does, gives the first and the last rank different numbers
of batches. Both are tried: the process pretends to be one rank and then the other, with the `WORLD_SIZE` there is, or with 2.

Why it hurts
------------
In distributed training, ranks wait for each other in every step. The rank that runs out of batches leaves the loop, and
the others wait for it in `all_reduce` until NCCL's timeout (ten minutes by default) ends the job: at the end of the
first epoch, with an error about a collective and not about data.

Example
-------
```python
def __iter__(self):
    return itertools.islice(self.items(), rank, None, world_size)      # 103 items: 52 for rank 0, 51 for rank 1
```

Fix
---
Give every rank the same number: `len(self) // world_size` items each, or pad the short ones, as `DistributedSampler` does for
indexed datasets. `stoker.ElasticDistributedSampler` pads or trims. `torch.distributed.algorithms.Join` lets ranks end at
different steps.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.sampler import SamplerFacts
from stoker._tools.doctor.facts.stream import StreamFacts
from stoker._tools.doctor.facts.target import TargetFacts


def examine(
    target: TargetFacts, stream: StreamFacts | None = None, sampler: SamplerFacts | None = None
) -> Iterator[Finding]:
    """By batches, not by samples: an epoch is as long as it has batches."""
    if stream is not None and stream.ranks:
        counts = [(rank, _batches(items, target)) for rank, items in stream.ranks]
        yield from _judged(counts, stream.world, f"{target.dataset_class}.__iter__", "stream")
    if sampler is not None and sampler.ranks:
        yield from _judged(list(sampler.ranks), sampler.world, sampler.name, "sampler")


def _judged(counts: list[tuple[int, int]], world: int, where: str, what: str) -> Iterator[Finding]:
    (first, most), (last, least) = counts
    if most == least:
        return
    yield CHECK.finding(
        f"of {world} ranks, rank {first} gets {most} batches from the {what} and rank {last} gets {least}: "
        "the others will wait for the one that ends first",
        "Give every rank the same number of batches: trim to the shortest, or pad.",
        where=where,
        numbers={"world": world, f"rank_{first}": most, f"rank_{last}": least},
    )


def _batches(items: tuple[int, ...], target: TargetFacts) -> int:
    """A stream is batched in each worker by itself."""
    size = target.loader.batch_size
    if size is None:
        return sum(items)
    return sum(each // size if target.loader.drop_last else -(-each // size) for each in items)


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    examine=examine,
    marks=(
        Mark(r"Detected at least one rank that exhausted inputs", weight=24),
        Mark(  # told in words
            r"(?i)\b(?:un(?:even|equal)|different) (?:numbers? of (?:batches|samples)|"
            r"(?:data|dataset|data ?loader|batch) (?:lengths?|sizes?)|lengths? of data)[^\n]{0,60}\b(?:ranks?|gpus?|processes)\b",
            weight=5,
        ),
    ),
    rows=(51,),
)
