"""Every worker, or every rank, reads the whole stream.

What it finds
-------------
The doctor reads the `IterableDataset` as the loader's workers do, for up to a second, and once without workers. It
compares items by content. The finding means that workers give the same items, or that each gives as many as the whole
stream has. With several ranks, the same is checked for ranks.

Why it hurts
------------
Each worker has a copy of the dataset and iterates over it from the start. Unless `__iter__` asks which worker it is in,
N workers give every item N times: an epoch is N times as long, and batches hold the same samples again.

Example
-------
```python
class Lines(IterableDataset):
    def __iter__(self):
        return map(parse, open(self.path))             # once in every worker
```

Fix
---
Let each worker take its share:

```python
def __iter__(self):
    info = torch.utils.data.get_worker_info()
    worker, workers = (info.id, info.num_workers) if info else (0, 1)
    return map(parse, itertools.islice(open(self.path), worker, None, workers))
```

Better still, give each worker its own files: `self.files[worker::workers]`. In a run of several ranks count those too:
`rank * workers + worker` of `world_size * workers`. stoker's loader gives the same data as torch's, and warns at the
end of the first epoch.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding, counted
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.stream import StreamFacts
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.wording import ERROR_LINE

_SHARE = 0.05
"""Of the items read: fewer may be records that the data really has twice."""

_CODE = """\
info = torch.utils.data.get_worker_info()
worker, workers = (info.id, info.num_workers) if info else (0, 1)
yield from itertools.islice(items, worker, None, workers)"""


def examine(stream: StreamFacts, target: TargetFacts) -> Iterator[Finding]:
    """By content where items can be told apart, else by their number."""
    if stream.ranks_alike and stream.world_known:
        yield CHECK.finding(
            f"of {stream.world} ranks the first and the last read the same items: every rank trains on the whole stream",
            "Take a share by rank too: item rank * workers + worker of every world_size * workers.",
            where=f"{target.dataset_class}.__iter__",
            numbers={"world": stream.world},
        )
    by_content = stream.repeated > _SHARE * max(1, stream.items)
    if not (by_content or stream.alike or stream.whole):
        return
    yield CHECK.finding(
        _evidence(stream, by_content),
        "Let __iter__ take its share of the items by get_worker_info().id and .num_workers.",
        severity="high" if target.loader.num_workers > 1 else "low",
        where=f"{target.dataset_class}.__iter__",
        edit=Edit(_CODE, site=_site(target), kind="shown"),
        numbers={
            "workers": len(stream.workers),
            "items": stream.items,
            "repeated": stream.repeated,
            "alone": stream.alone.items if stream.alone.ended else None,
        },
    )


def _evidence(stream: StreamFacts, by_content: bool) -> str:
    workers = counted(len(stream.workers), "worker")
    if stream.whole:
        more = f", {stream.repeated} of them again" if by_content else ""
        return (
            f"{workers} gave {stream.items} items{more}, where the stream has {stream.alone.items}: "
            "each of them read all of it"
        )
    if by_content and stream.example is not None:
        first, number, second, other = stream.example
        return (
            f"of the first {stream.items} items from {workers}, {stream.repeated} had already come from another worker: "
            f"item {number} of worker {first} is item {other} of worker {second}"
        )
    return f"{workers} gave the same items in the same order, {stream.items} in all"


def _site(target: TargetFacts) -> str | None:
    if target.dataset_file is None:
        return None
    return f"{target.dataset_file}:{target.dataset_line}" if target.dataset_line else target.dataset_file


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    examine=examine,
    marks=(
        Mark(r"every worker reads the whole stream: the first \d+ batches of all", weight=30),
        Mark(  # told in words
            r"(?i)\b(?:data|samples?|examples?|keys?|batch(?:es)?)\b[^\n]{0,30}\b(?:repeat(?:s|ed)|duplicat\w+)\b|"
            r"\bduplicated? (?:data|samples?|examples?|keys?|batch(?:es)?)\b",
            also=(r"(?i)\bdata ?loader|num_?work",),
            never=(r"could be inaccurate if each worker", ERROR_LINE),
            weight=5,
        ),
        Mark(
            r"if each worker is not configured independently to avoid having duplicate data", weight=3
        ),  # Lightning
    ),
    rows=(14,),
)
