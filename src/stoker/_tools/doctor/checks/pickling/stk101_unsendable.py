"""A part of the dataset cannot be sent to a worker.

What it finds
-------------
Parts of the dataset, of `collate_fn` or of `worker_init_fn` that cannot be pickled: an open file, a lock, a generator,
a module, a class whose `__getstate__` raises. It names all of them by path, not only the first. Functions and classes
defined inside others are STK102. Open handles and running threads at a fork are STK103 and STK104.

Why it hurts
------------
Under spawn and forkserver every worker is a new process, and the dataset is pickled for it. One part that cannot be pickled
ends the run at `iter(loader)`, and the message names a type (`cannot pickle '_io.BufferedReader' object`) but not where it is.
forkserver is the default on Linux from Python 3.14 on, spawn on macOS and Windows.

Example
-------
```python
class Records(Dataset):
    def __init__(self, path):
        self.file = open(path, "rb")          # cannot pickle '_io.BufferedReader' object
```

Fix
---
Store what is needed to make the object, and make it where it is used, once per worker:

```python
class Records(Dataset):
    def __init__(self, path):
        self.path, self.file = path, None

    def __getitem__(self, index):
        if self.file is None:
            self.file = open(self.path, "rb")
```

Or leave it out when the dataset is pickled:

```python
    def __getstate__(self):
        return {**self.__dict__, "file": None}
```

stoker's loader sends modules, text files that are read, and tensors with a history. A lock or a connection cannot be
sent.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding, counted
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.scan import ScanFacts, Unsendable
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.wording import (
    ABOUT_LOADERS,
    FEEDING,
    FOREIGN,
    FRAME,
    LOADER,
    OTHERS,
    POOLS,
    STARTING,
    by_a_loader,
    told,
)

_SHOWN = 5


def examine(scan: ScanFacts, target: TargetFacts) -> Iterator[Finding]:
    """A fault where workers are sent the dataset. Where they are forked it is only worth knowing."""
    loader = target.loader
    if not loader.num_workers:
        return
    tensors = {each.path for each in scan.odd_tensors}
    refused = [
        each
        for each in scan.unsendable
        if each.path not in tensors and (each.anyone or loader.engine != "stoker")
    ]
    if loader.start_method != "fork":
        yield from (_found(each, loader.start_method, loader.site) for each in refused)
        return
    told = {each.path for each in scan.handles} | {each.path for each in scan.held}
    quiet = [each for each in refused if each.path not in told]
    if quiet:
        yield CHECK.finding(
            f"workers are forked here and inherit it, but {_listed(quiet)} could not be sent to workers that are spawned (macOS, "
            "Windows, Python 3.14 and later)",
            quiet[0].remedy,
            severity="none",
            where=quiet[0].path,
            numbers={"parts": len(quiet), "start_method": loader.start_method},
        )


def _found(each: Unsendable, method: str, site: str | None) -> Finding:
    more = f" (and {each.count - 1} more like it in the same container)" if each.count > 1 else ""
    error = each.error.rstrip(".")
    return CHECK.finding(
        f"{each.path} ({each.kind}){more} cannot be sent to a worker under {method}: {error}",
        (each.remedy or "Leave it out in __getstate__, and make it again where it is used.")
        + ("" if each.anyone else " Or use stoker's loader, which can send it."),
        edit=None if each.anyone else Edit("from stoker import DataLoader", None, site, "import"),
        where=each.path,
        numbers={"kind": each.kind, "count": each.count, "anyone": str(each.anyone).lower()},
    )


def _listed(parts: list[Unsendable]) -> str:
    names = ", ".join(f"{each.path} ({each.kind})" for each in parts[:_SHOWN])
    rest = len(parts) - _SHOWN
    return names if rest <= 0 else f"{names} and {counted(rest, 'other part')}"


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    examine=examine,
    marks=(
        Mark(r"cannot be sent to a worker:", weight=30),
        *by_a_loader(
            r"(?:[Cc]annot|[Cc]an't|can not) (?:pickle|serialize) (?!local\b)'?[\w.]+'? objects?\b", weight=20
        ),
        Mark(  # in a rank, which is started already
            r"(?:[Cc]annot|[Cc]an't|can not) (?:pickle|serialize) (?!local\b)'?[\w.]+'? objects?\b",
            also=(r"while not \w*context\.join\(\)|-- Process \d+ terminated with the following error",),
            never=(FEEDING, POOLS),
            weight=12,
        ),
        told(r"pickl(?:e|ing) errors?|pickling problem"),
        Mark(  # LMDB's, which datasets hold
            r"(?:[Cc]annot|[Cc]an't) pickle '?Environment'? objects?\b", never=(POOLS,), weight=11
        ),
        Mark(r"[hH]5py objects cannot be pickled", also=(LOADER,), weight=20),
        Mark(r"cannot be pickled', '_\w*DataLoaderIter'", weight=20),
        Mark(r"[hH]5py objects cannot be pickled", never=(FRAME,), weight=12),
        *by_a_loader(r"no default __reduce__ due to non-trivial __cinit__", weight=20),
        Mark(
            r"Can't pickle [^\n]{1,200}: it's not the same object as",
            also=(LOADER,),
            never=(FEEDING,),
            weight=20,
        ),
        Mark(  # below a title
            r"Can't pickle [^\n]{1,200}: it's not the same object as",
            also=(ABOUT_LOADERS,),
            never=(FEEDING, OTHERS, POOLS),
            weight=12,
        ),
        Mark(  # the head of a notebook's traceback, whose end was cut off
            r"^(?:_?pickle\.)?PicklingError {2,}",
            also=(rf"{ABOUT_LOADERS}|{LOADER}",),
            never=(
                POOLS,
                FOREIGN,
                r"pyspark|cloudpickle|serialization\.py|torch\.save|[Cc]an(?:'t|not) pickle",
            ),
            weight=7,
        ),
        *by_a_loader(
            r"KeyError: '__getstate__'|Can't pickle <type '\w+'>: attribute lookup",
            never=(FEEDING,),
            weight=20,
        ),
        Mark(r"Got pickle error when attempting to start a worker Process", weight=4),
        Mark(  # whatever is raised while a worker is being told its dataset
            r"^ *ForkingPickler\(file, protocol\)\.dump\(obj\)\n(?:[ ~^]*\n)?"
            r"(?:\w+\.)*(?!BrokenPipe|ConnectionReset|OSError|EOFError|MemoryError|KeyboardInterrupt)\w+(?:Error|Exception)\b",
            also=(LOADER,),
            never=(r"[Cc]an(?:'t|not) (?:pickle|get|serialize)",),
            weight=16,
        ),
        Mark(r"which does not have a __getstate__ method defined", also=(LOADER,), weight=20),
        Mark(
            r"Could not pickle object as excessively deep recursion required|"
            r"RecursionError: maximum recursion depth exceeded while pickling",
            also=(LOADER, STARTING),
            weight=20,
        ),
    ),
    rows=(19,),
)
