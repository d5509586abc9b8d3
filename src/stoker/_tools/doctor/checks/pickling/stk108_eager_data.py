"""All data is loaded before the first sample is asked for.

What it finds
-------------
Arrays, tensors and encoded files that the dataset holds in memory: more than a quarter of the memory there is, or more
than 2 GiB. The limit is 256 MiB if the source shows that `__init__` loads everything, from files or by taking all samples
of another dataset, and `__getitem__` only indexes it.
Paths, mapped files (`np.memmap`, Arrow) and data held by `stoker.share` do not count.

Why it hurts
------------
The run begins with reading everything, and everything stays in memory: once if workers are forked, once more in every
worker if torch has to send arrays to them, and all of this per rank. What does not fit ends with the OOM killer, and a
larger dataset never starts. The page cache keeps files that are read often anyway.

Example
-------
```python
class Volumes(Dataset):
    def __init__(self, paths):
        self.volumes = [np.load(path) for path in paths]         # 40 GB before the first batch

    def __getitem__(self, index):
        return self.volumes[index]
```

Fix
---
Keep the paths, and read in `__getitem__`, which runs in the workers in parallel:

```python
class Volumes(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __getitem__(self, index):
        return np.load(self.paths[index])
```

For one large array: `np.load(path, mmap_mode="r")` reads only the pages that are used. If decoding is the cost, and the
data fits once, `stoker.share(dataset)` holds it once for all workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from stoker._record.finding import Edit, Finding, size
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.scan import AttributeTotal, Preload, ScanFacts
from stoker._tools.doctor.facts.target import LoaderArguments, TargetFacts

_MUCH_BYTES = 2 << 30
_SEEN_BYTES = 256 << 20
_SHARE = 0.25
_SEEN_SHARE = 0.05
_DATA = 0.5
"""Of a part's bytes: so much that is no Python object makes it data, not names of data."""


def examine(scan: ScanFacts, target: TargetFacts) -> Iterator[Finding]:
    """By what all such parts take together; the largest is named. Less is enough where the source shows how it came about."""
    preloads = {each.path: each for each in scan.preloads if each.only_indexed}
    parts = [part for part in scan.parts if _is_data(part) or _preload(part, preloads)]
    held = sum(part.nbytes for part in parts)
    if not held:
        return
    memory = None if scan.room_bytes is None else scan.room_bytes + held
    largest = max(parts, key=lambda part: part.nbytes)
    preload = _preload(largest, preloads)
    least, share = (_SEEN_BYTES, _SEEN_SHARE) if preload else (_MUCH_BYTES, _SHARE)
    if held < least and (memory is None or held < share * memory):
        return
    loader = target.loader
    copies = _copies(loader)
    needed = held * (1 + copies)
    crowded = memory is not None and needed > memory
    yield CHECK.finding(
        f"{largest.path} ({largest.kind}) holds {size(largest.nbytes)} in memory{_others(parts, held)}{_how(preload)}"
        + (f"; {loader.start_method} copies arrays into {copies} workers: {size(needed)}" if copies else "")
        + ("" if memory is None else f", where {size(memory)} are to be had"),
        _advice(preload),
        severity="high" if crowded else "moderate" if memory and needed > _SHARE * memory else "low",
        edit=_edit(preload),
        where=largest.path,
        numbers={
            "held_bytes": held,
            "needed_bytes": needed,
            "memory_bytes": memory,
            "copies": copies,
            "line": preload.line if preload else None,
        },
    )


def _is_data(part: AttributeTotal) -> bool:
    data = part.nbytes - part.copied_bytes
    return part.backing == "private" and data > _DATA * part.nbytes and part.nbytes > 1 << 20


def _preload(part: AttributeTotal, preloads: dict[str, Preload]) -> Preload | None:
    """The line of ``__init__`` that filled this part, or what it lies in."""
    if part.backing != "private":
        return None
    inside = (
        path for path in preloads if part.path == path or part.path.startswith((f"{path}.", f"{path}["))
    )
    return preloads.get(next(inside, ""))


def _copies(loader: LoaderArguments) -> int:
    """Copies beside the first one: torch pickles arrays for every worker that it cannot fork."""
    return 0 if loader.start_method == "fork" or loader.engine == "stoker" else loader.num_workers


def _others(parts: list[AttributeTotal], held: int) -> str:
    return f" ({size(held)} with {len(parts) - 1} more)" if len(parts) > 1 else ""


def _how(preload: Preload | None) -> str:
    if preload is None:
        return ""
    site = f"{PurePath(preload.file).name}:{preload.line}"
    if preload.how == "dataset":
        return (
            f", all samples of {preload.call} taken in __init__ ({site}) while __getitem__ only indexes them"
        )
    verb = {"loop": "read in a loop", "whole": "read at once", "made": "made at once"}[preload.how]
    return f", {verb} by {preload.call} in __init__ ({site}) while __getitem__ only indexes it"


def _advice(preload: Preload | None) -> str:
    if preload is None:
        return (
            "Keep paths and read in __getitem__, map it (np.load(path, mmap_mode='r')), or hold it once for all workers: "
            "stoker.share(dataset)."
        )
    if preload.how == "loop":
        return f"Keep the paths, and call {preload.call} in __getitem__: workers then read in parallel, and only what is asked for."
    if preload.how == "dataset":
        return (
            f"Keep {preload.call} itself and take its sample in __getitem__: workers then read in parallel. If decoding is the "
            "cost, stoker.cache(dataset) keeps samples once for all workers."
        )
    if preload.how == "whole":
        return (
            "Map the file instead of reading it (np.load(path, mmap_mode='r')): only needed pages are read."
        )
    return "Load lazily: make each sample in __getitem__, or keep the data in a file and map it (np.load(path, mmap_mode='r'))."


def _edit(preload: Preload | None) -> Edit | None:
    if preload is None or preload.how != "loop":
        return None
    attribute = preload.path.rpartition(".")[2]
    return Edit(f"return {preload.call}(self.paths[index])", f"return self.{attribute}[index]", None, "shown")


CHECK = Check(__name__, __doc__, severity="high", examine=examine)
