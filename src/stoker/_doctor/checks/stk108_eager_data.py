"""All data is loaded before the first sample is asked for.

What it finds
-------------
Arrays, tensors and encoded files that the dataset holds in memory: more than a quarter of the memory there is, or more than 2 GiB.
From 512 MiB on where the source shows that `__init__` reads files in a loop and `__getitem__` only indexes what was read. Paths,
mapped files (`np.memmap`, Arrow) and what `stoker.share` holds are not meant.

Why it hurts
------------
The run begins with reading everything, and everything stays in memory: once where workers are forked, once more in every
worker where torch has to send arrays to them, and all of that once per rank. What does not fit ends with the OOM killer, and a
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
Keep the paths, and read where the sample is made, which is in the workers and in parallel:

```python
class Volumes(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __getitem__(self, index):
        return np.load(self.paths[index])
```

For one large array: `np.load(path, mmap_mode="r")` reads only the pages that are used. Where decoding is what costs, and the
data fits once, `stoker.share(dataset)` holds it once for all workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from stoker._core.finding import Edit, Finding, size
from stoker._doctor.check import Check
from stoker._doctor.facts.scan import Part, Reading, Scan
from stoker._doctor.facts.target import Loader, Target

_MUCH_BYTES = 2 << 30
_READ_BYTES = 512 << 20
_SHARE = 0.25
_READ_SHARE = 0.05
_DATA = 0.5
"""Of a part's bytes: so much that is no Python object makes it data, not names of data."""


def examine(scan: Scan, target: Target) -> Iterator[Finding]:
    """By what all such parts take together; the largest is named."""
    readings = {f"dataset.{each.attribute}": each for each in scan.readings if each.only_indexed}
    parts = [part for part in scan.parts if _is_data(part) or _read(part, readings)]
    held = sum(part.nbytes for part in parts)
    if not held:
        return
    memory = None if scan.room_bytes is None else scan.room_bytes + held
    largest = max(parts, key=lambda part: part.nbytes)
    reading = _read(largest, readings)
    least, share = (_READ_BYTES, _READ_SHARE) if reading else (_MUCH_BYTES, _SHARE)
    if held < least and (memory is None or held < share * memory):
        return
    loader = target.loader
    copies = _copies(loader)
    needed = held * (1 + copies)
    crowded = memory is not None and needed > memory
    yield CHECK.finding(
        f"{largest.path} ({largest.kind}) holds {size(largest.nbytes)} in memory{_others(parts, held)}{_how(reading)}"
        + (f"; {loader.start_method} copies arrays into {copies} workers: {size(needed)}" if copies else "")
        + ("" if memory is None else f", where {size(memory)} are to be had"),
        _advice(reading),
        severity="high" if crowded else "moderate" if memory and needed > _SHARE * memory else "low",
        edit=_edit(largest, reading),
        where=largest.path,
        numbers={
            "held_bytes": held,
            "needed_bytes": needed,
            "memory_bytes": memory,
            "copies": copies,
            "line": reading.line if reading else None,
        },
    )


def _is_data(part: Part) -> bool:
    return (
        part.backing == "private"
        and part.nbytes - part.copied_bytes > _DATA * part.nbytes
        and part.nbytes > 1 << 20
    )


def _read(part: Part, readings: dict[str, Reading]) -> Reading | None:
    """The loop of ``__init__`` that filled this part or what it lies in."""
    inside = (
        name for name in readings if part.path == name or part.path.startswith((f"{name}.", f"{name}["))
    )
    name = next(inside, None)
    return None if name is None or part.backing != "private" else readings[name]


def _copies(loader: Loader) -> int:
    """Copies beside the first one: torch pickles arrays for every worker that it cannot fork."""
    return 0 if loader.start_method == "fork" or loader.engine == "stoker" else loader.num_workers


def _others(parts: list[Part], held: int) -> str:
    return f" ({size(held)} with {len(parts) - 1} more)" if len(parts) > 1 else ""


def _how(reading: Reading | None) -> str:
    if reading is None:
        return ""
    site = f"{PurePath(reading.file).name}:{reading.line}"
    return f", read by {reading.call} in a loop of __init__ ({site}) while __getitem__ only indexes it"


def _advice(reading: Reading | None) -> str:
    if reading is not None:
        return f"Keep the paths, and call {reading.call} in __getitem__: workers then read in parallel, and only what is asked for."
    return "Keep paths and read in __getitem__, map it (np.load(path, mmap_mode='r')), or hold it once: stoker.share(dataset)."


def _edit(part: Part, reading: Reading | None) -> Edit | None:
    if reading is None:
        return None
    name = reading.attribute
    return Edit(f"return {reading.call}(self.paths[index])", f"return self.{name}[index]", None, "shown")


CHECK = Check(__name__, __doc__, severity="high", examine=examine)
