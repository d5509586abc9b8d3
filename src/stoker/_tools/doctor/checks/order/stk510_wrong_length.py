"""The stream is not as long as it says.

What it finds
-------------
An `IterableDataset` with a `__len__` that differs from the number of items it gives.

Why it hurts
------------
`len(loader)` is computed from it. Progress bars, learning-rate schedules and frameworks that stop after `len(loader)`
steps use a wrong number: schedules end early or never, and items beyond it are left out. torch warns when more arrive
than were declared, and says nothing when fewer do.

Example
-------
```python
def __len__(self):
    return len(self.files)                # and __iter__ gives several records of each file
```

Fix
---
Count what `__iter__` gives, or leave `__len__` out: a stream need not have a length. Where workers share the stream, it is
the length of the whole, not of one worker's part.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.stream import StreamFacts
from stoker._tools.doctor.facts.target import TargetFacts

_SHARE = 0.01


def examine(stream: StreamFacts, target: TargetFacts) -> Iterator[Finding]:
    """Read without workers to its end, or beyond what it declares. A stream that was not read so far tells nothing."""
    declared, alone = stream.declared, stream.alone
    if declared is None or stream.broken is not None:
        return
    if alone.ended and alone.items == declared:
        return
    if not alone.ended and alone.items <= declared:
        return
    if stream.ended and stream.items == declared and not stream.whole:
        return  # a stream that shares itself out may only be whole with workers
    off = abs(alone.items - declared) / max(1, declared)
    than = "" if alone.ended else "more than "
    yield CHECK.finding(
        f"len(dataset) is {declared}, and the stream gives {than}{alone.items} items",
        "Correct __len__, or leave it out.",
        severity="moderate" if off > _SHARE else "low",
        where=f"{target.dataset_class}.__len__",
        numbers={"declared": declared, "items": alone.items, "ended": int(alone.ended)},
    )


CHECK = Check(
    __name__,
    __doc__,
    severity="moderate",
    examine=examine,
    marks=(
        Mark(
            r"Length of IterableDataset [^\n]{1,200} was reported to be \d+ \(when accessing len\(dataloader\)\), "
            r"but \d+ samples have been fetched",
            weight=4,
        ),
    ),
)
