"""The dataset is pickled for every worker in turn.

What it finds
-------------
A dataset whose pickle is large or slow, if torch's loader has to send it. The finding has bytes and seconds for one
worker (measured on a sample if it is large), times the number of workers. NumPy arrays count, and so do mapped files
(`np.memmap`), which are pickled whole. Tensors do not: they are moved into shared memory once.

Why it hurts
------------
Under spawn and forkserver torch pickles the dataset once per worker, one after the other, writes it through a pipe, and every
worker unpickles a copy of its own. Epochs begin with minutes of silence, again in every epoch without
`persistent_workers`, and memory grows with the number of workers.

Example
-------
```python
class Rows(Dataset):
    def __init__(self, table):
        self.rows = table.to_dict("records")           # 5 million dicts: 10 s of pickling for each of 8 workers
```

Fix
---
Send less: keep paths and open files in the worker, keep the path of an `np.memmap` and map it at the first
`__getitem__`. `dataset = stoker.share(dataset)` puts lists, dicts, arrays and tables into one sealed file. Only its
descriptor is sent, also with torch's loader. With `persistent_workers=True` the cost is paid once instead of every
epoch. stoker's loader pickles once for all workers.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding, counted, duration, size
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.scan import AttributeTotal, ScanFacts
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.wording import LOADER, OTHERS, POOLS

_ARRAY_S_PER_BYTE = 2.5e-9
"""About what it takes to copy an array into a pickle, through a pipe, and out of it: 2.5 s for a gigabyte."""

_FELT_S, _LONG_S = 2.0, 20.0
_ROOM = 0.25
"""Of the memory that can still be taken: copies that need more are a hazard."""


def examine(scan: ScanFacts, target: TargetFacts) -> Iterator[Finding]:
    """Forked workers inherit the dataset, and stoker sends it once."""
    loader = target.loader
    if loader.start_method == "fork" or loader.engine == "stoker" or not loader.num_workers:
        return
    if scan.pickle_bytes is None or scan.pickle_s is None:
        return
    nbytes = scan.pickle_bytes + scan.array_bytes
    each_s = scan.pickle_s + scan.array_bytes * _ARRAY_S_PER_BYTE
    total_s, total_bytes = each_s * loader.num_workers, nbytes * loader.num_workers
    crowded = scan.room_bytes is not None and total_bytes > _ROOM * scan.room_bytes
    if total_s < _FELT_S and not crowded:
        return
    biggest = _biggest(scan)
    again = "" if loader.persistent_workers else ", again at every epoch"
    room = "" if scan.room_bytes is None else f" of {size(scan.room_bytes)} that are free"
    yield CHECK.finding(
        f"about {size(nbytes)} are pickled in about {duration(each_s)} for each of {counted(loader.num_workers, 'worker')}, "
        f"one after the other: {duration(total_s)}{again}, and {size(total_bytes)}{room}{_mostly(biggest)}",
        "dataset = stoker.share(dataset) sends a descriptor instead of the data; or keep paths and read in the worker.",
        severity="high" if crowded or total_s > 3 * _LONG_S else "moderate" if total_s > _LONG_S else "low",
        edit=Edit("stoker.share(dataset)", "dataset", loader.site, "share"),
        where=biggest.path if biggest else "dataset",
        numbers={
            "pickle_bytes": nbytes,
            "pickle_s": each_s,
            "workers": loader.num_workers,
            "total_bytes": total_bytes,
            "total_s": total_s,
            "room_bytes": scan.room_bytes,
        },
    )


def _biggest(scan: ScanFacts) -> AttributeTotal | None:
    """What makes the pickle large: of tensors only a handle is in it, and of what is shared."""
    sent = [part for part in scan.parts if part.backing != "shared" and not part.kind.startswith("tensor")]
    return max(sent, key=lambda part: part.nbytes, default=None)


def _mostly(part: AttributeTotal | None) -> str:
    if part is None:
        return ""
    mapped = ": a mapped file is pickled whole" if part.backing == "file" else ""
    return f"; most of it is {part.path} ({part.kind}, {size(part.nbytes)}){mapped}"


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="The dataset is pickled once, into memory that all workers map, and they start side by side.",
    examine=examine,
    marks=(
        Mark(
            r"cannot serialize a (?:bytes|string|unicode)(?: objects?)? larger than 4 ?GiB",
            also=(LOADER,),
            weight=20,
        ),
        Mark(
            r"cannot serialize a (?:bytes|string|unicode)(?: objects?)? larger than 4 ?GiB",
            also=(
                r"ForkingPickler\(file, protocol\)|popen_spawn_win32|multiprocessing[\\/]reduction\.py\", line \d+, in dump",
            ),
            never=(OTHERS, POOLS),
            weight=14,
        ),
        Mark(r"'i' format requires -2147483648 <= number <= 2147483647", also=(LOADER,), weight=18),
        Mark(
            r"OSError: \[Errno 22\] Invalid argument", also=(LOADER, r"reduction\.py|popen_spawn"), weight=16
        ),
        Mark(
            r"OSError: \[Errno 22\] Invalid argument",
            also=(r"ForkingPickler\(file, protocol\)|popen_spawn_win32",),
            never=(OTHERS, POOLS),
            weight=14,
        ),
        Mark(r"pickle data was truncated", also=(r"reduction\.pickle\.load|spawn_main",), weight=16),
        Mark(
            r"ForkingPickler\(file, protocol\)\.dump\(obj\)\n(?:[ ~^]*\n)?MemoryError",
            also=(LOADER,),
            weight=20,
        ),
    ),
    rows=(37,),
)
