"""A batch is made of many small tensors.

What it finds
-------------
A batch with 64 tensors or more, of less than 64 KiB each on average.

Why it hurts
------------
torch gives each tensor a file in shared memory, a descriptor that is sent through a socket, and a mapping in the trainer: about
0.1 ms a tensor on each side, whatever its size. With hundreds of them workers can be slower than none, and kept batches use
up descriptors (STK202).

Example
-------
```python
def collate(rows):
    return [torch.tensor(row) for row in rows]          # 256 tensors a batch
```

Fix
---
Put them together in the worker: `torch.stack`, or for ragged rows one long tensor and its offsets (`torch.cat(rows)`,
`torch.tensor([len(row) for row in rows])`). Numbers that belong together make one tensor of a sample, not a dict of scalars.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding, size
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.samples import SampleFacts
from stoker._tools.doctor.facts.target import TargetFacts

_MANY = 64
_SMALL_BYTES = 64 << 10


def examine(samples: SampleFacts, target: TargetFacts) -> Iterator[Finding]:
    """By the batch that was collated: those of torch's own collation have few."""
    loader = target.loader
    count = samples.batch_tensors
    if loader.engine == "stoker" or not loader.num_workers or count < _MANY:
        return
    sizes = [leaf.data_bytes for leaf in samples.batch_leaves if leaf.kind == "tensor"]
    average = sum(sizes) / max(1, len(sizes))
    if average < _SMALL_BYTES:
        yield CHECK.finding(
            f"a batch of {samples.batch_rows} samples has {count} tensors of {size(average)} on average: {count} files and "
            "descriptors for each of them",
            "Stack or concatenate them in the collate_fn: one tensor for each thing, with offsets where rows are ragged.",
            where="batch",
            numbers={"tensors": count, "average_bytes": round(average), "rows": samples.batch_rows},
        )


CHECK = Check(
    __name__,
    __doc__,
    severity="moderate",
    prevented="All tensors of a batch lie in one slot: no file, descriptor or mapping for each.",
    examine=examine,
    rows=(40,),
)
