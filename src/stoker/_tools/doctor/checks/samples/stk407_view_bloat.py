"""A batch holds small views of large tensors.

What it finds
-------------
Tensors of a batch that show a small part of the memory behind them: less than half of it, and more than 1 MiB is hidden. torch's
own collation copies, so this needs a `collate_fn` that does not, or `batch_size=None`.

Why it hurts
------------
torch moves whole storages to shared memory. A row of 40 bytes that is a view of a table of 244 MB sends 244 MB, for every
batch: shared memory fills up, and the worker spends its time copying.

Example
-------
```python
def __getitem__(self, index):
    return self.table[index]                   # a view of all of self.table
loader = DataLoader(dataset, batch_size=None, num_workers=4)
```

Fix
---
`return self.table[index].clone()`. stoker's loader sends only what a view shows.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding, counted, size
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.samples import SampleFacts
from stoker._tools.doctor.facts.target import TargetFacts

_HIDDEN_BYTES = 1 << 20
_SERIOUS_BYTES = 32 << 20


def examine(samples: SampleFacts, target: TargetFacts) -> Iterator[Finding]:
    """The storage that hides most; the others have the same cause."""
    if target.loader.engine == "stoker" or not target.loader.num_workers:
        return
    found = [
        each
        for each in samples.batch_storages
        if each.storage_bytes > 2 * each.used_bytes and each.storage_bytes - each.used_bytes > _HIDDEN_BYTES
    ]
    if not found:
        return
    worst = max(found, key=lambda each: each.storage_bytes - each.used_bytes)
    sent, shown = sum(each.storage_bytes for each in found), sum(each.used_bytes for each in found)
    yield CHECK.finding(
        f"batch{worst.path} shows {size(worst.used_bytes)} of a storage of {size(worst.storage_bytes)}, and torch sends all of "
        f"it: {size(sent)} for {size(shown)} of data in {counted(len(found), 'storage')} of every batch",
        "Copy what is needed where the sample is made: tensor[index].clone().",
        severity="high" if sent - shown > _SERIOUS_BYTES else "moderate",
        where=f"batch{worst.path}",
        numbers={
            "used_bytes": worst.used_bytes,
            "storage_bytes": worst.storage_bytes,
            "sent_bytes": sent,
            "storages": len(found),
        },
    )


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="Only what a view shows travels.",
    examine=examine,
    rows=(41,),
)
