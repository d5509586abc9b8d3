"""The dataset raises StopIteration for a sample.

What it finds
-------------
A `dataset[index]` that raised StopIteration: usually a bare `next(iterator)` inside `__getitem__`. In a generator it comes out as
`RuntimeError: generator raised StopIteration`.

Why it hurts
------------
StopIteration is how iteration ends. It leaves the loader as if the epoch were over: no error, fewer batches than
`len(loader)`, and a training run that quietly saw a part of its data.

Example
-------
```python
def __getitem__(self, index):
    return next(self.reader)        # the reader is at its end long before the sampler is
```

Fix
---
Give `next` a default and raise something else: `row = next(self.reader, None)`, then `raise IndexError(index)` for None. Better,
read by index; a reader that moves forward belongs into an `IterableDataset`.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.samples import SampleFacts
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.wording import LOADER


def examine(samples: SampleFacts, target: TargetFacts) -> Iterator[Finding]:
    """Of samples and of what collates them."""
    found = [
        each
        for each in samples.failures
        if each.kind == "StopIteration" or "generator raised StopIteration" in each.text
    ]
    if not found:
        return
    first = found[0]
    place = "collate_fn" if first.collating else f"dataset[{first.index}]"
    if target.stream and not first.collating:
        place = f"item {first.index} of the stream"
    silent = first.kind == "StopIteration" and target.loader.engine == "torch"
    of = f" of {target.length:,}" if target.length is not None else ""
    yield CHECK.finding(
        f"{place}{of} raised {first}"
        + ("; torch's loader takes that for the end of the epoch and says nothing" if silent else ""),
        "Catch it where next() is called, and raise IndexError or ValueError instead.",
        where=place,
        numbers={"index": first.index, "failures": len(found), "tried": len(samples.indices)},
    )


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="A RuntimeError says which index raised StopIteration; the epoch does not end early.",
    examine=examine,
    marks=(
        Mark(r"the dataset raised StopIteration for index|collate_fn raised StopIteration", weight=30),
        Mark(
            r"generator raised StopIteration",
            also=(rf"{LOADER}|data_?loader\w*\.py\"|\bfor [^\n]{{1,80}} in [^\n]{{0,40}}data_?loader",),
            weight=22,
        ),
        Mark(r"Caught StopIteration in DataLoader worker process", weight=26),
    ),
    rows=(16,),
)
