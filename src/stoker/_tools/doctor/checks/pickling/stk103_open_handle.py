"""Workers share a handle that was opened before they were forked.

What it finds
-------------
Open files, zip and tar archives, h5py files, databases (sqlite3, lmdb, ...), sockets, pipes, videos, and PIL images that
are not decoded yet, by path: on the dataset, in what it holds, on its class. Handles that `__getstate__` drops are
found too, because a fork does not call it. If workers are spawned, see STK101. Mapped files (`mmap`, `np.memmap`) and
files in memory are fine: they have no offset that is shared. So are queues of multiprocessing, whose pipe has a lock.

Why it hurts
------------
A forked worker inherits the descriptor, and with it the one file offset that all of them share. While one worker seeks
and reads, another moves the offset: wrong samples without an error, `Bad CRC-32`, `bad object header version number`,
short reads. Several processes then use one database connection or socket at once. It shows only under load.

Example
-------
```python
class Slices(Dataset):
    def __init__(self, path):
        self.file = h5py.File(path)                 # every worker reads through this one

    def __getitem__(self, index):
        return self.file["slices"][index]
```

Fix
---
Open it late, once per worker:

```python
class Slices(Dataset):
    def __init__(self, path):
        self.path, self.file = path, None
        with h5py.File(path) as file:
            self.length = len(file["slices"])

    def __getitem__(self, index):
        if self.file is None:
            self.file = h5py.File(self.path)
        return self.file["slices"][index]
```

For plain files, `os.pread(fd, size, offset)` does not use the shared offset at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding, counted
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.scan import Handle, ScanFacts
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.wording import (
    ABOUT_LOADERS,
    ABOUT_TRAINING,
    ERROR_LINE,
    FEEDING,
    FRAME,
    IN_WORKER,
    LOADER,
    OTHERS,
    POOLS,
)

_SHARED = {
    "file": "workers share its one offset, so that a read in one of them moves it for all",
    "archive": "workers share the offset of its file, so that a read in one of them moves it for all",
    "image": "it is not decoded yet, and workers share the offset of its file",
    "database": "it is one connection, and serves one process",
    "socket": "it is one stream, of which every worker would get some of the answers",
    "pipe": "it is one stream: workers mix what they write, and take each other's messages",
    "video": "workers share its file and the state of its decoder",
    "output": "what workers write to it is mixed, and written twice what was buffered before the fork",
}
_SEVERITIES = {"pipe": "moderate"}
"""Below high: one that no sample uses does no harm."""
_OPENERS = {
    "ZipFile": "zipfile.ZipFile({0})",
    "TarFile": "tarfile.open({0})",
    "Connection": "sqlite3.connect({0})",
    "h5py.File": 'h5py.File({0}, "r")',
    "lmdb.Environment": "lmdb.open({0}, readonly=True, lock=False)",
    "cv2.VideoCapture": "cv2.VideoCapture({0})",
}


def examine(scan: ScanFacts, target: TargetFacts) -> Iterator[Finding]:
    """Only where workers are forked: nothing is shared with one that is spawned."""
    loader = target.loader
    if loader.start_method != "fork" or not loader.num_workers:
        return
    for each in scan.handles:
        if each.what in _SHARED:
            yield _found(each, loader.num_workers)


def _found(each: Handle, workers: int) -> Finding:
    more = f" (and {each.count - 1} more like it)" if each.count > 1 else ""
    name = f" on {each.name}" if each.name else ""
    dropped = "; __getstate__ leaves it out, but a fork does not ask it" if each.dropped else ""
    severity = "low" if each.what == "output" or workers == 1 else _SEVERITIES.get(each.what, "high")
    return CHECK.finding(
        f"{each.path} ({each.kind}{name}){more} is open and inherited by {counted(workers, 'forked worker')}: "
        f"{_SHARED[each.what]}{dropped}",
        _advice(each),
        severity=severity,
        edit=_edit(each),
        where=each.path,
        numbers={
            "what": each.what,
            "kind": each.kind,
            "file": each.name,
            "count": each.count,
            "workers": workers,
        },
    )


def _advice(each: Handle) -> str:
    if each.what == "image":
        return "Keep the path and open the image in __getitem__, or decode it at once with .load()."
    if each.what == "pipe":
        return "Use a multiprocessing.Queue, which has a lock, or make a pipe of its own for every worker (worker_init_fn)."
    if each.what == "output":
        return "Open a file of its own in every worker (worker_init_fn), or log: what workers log reaches the main process."
    return "Keep what it takes to open it, set it to None in __init__, and open it at the first __getitem__ of every worker."


def _edit(each: Handle) -> Edit | None:
    """How to open it late, where it is an attribute of the dataset itself."""
    owner, _, attribute = each.path.rpartition(".")
    if owner != "dataset" or each.what in ("image", "output", "socket", "pipe") or each.count > 1:
        return None
    call = _OPENERS.get(each.kind, 'open({0}, "rb")' if each.what == "file" else "")
    if not call or (each.kind.partition(".")[2] and each.kind not in _OPENERS):
        return None
    return Edit(
        f"if self.{attribute} is None: self.{attribute} = {call.format('self.path')}", None, None, "shown"
    )


_LMDB = (
    r"MDB_READERS_FULL|MDB_BAD_RSLOT|MDB_CORRUPTED|MDB_PAGE_NOTFOUND|Invalid reuse of reader locktable slot"
)

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    examine=examine,
    marks=(
        Mark(
            r"Bad CRC-32 for file|Bad magic number for file header|"
            r"File name in directory [^\n]{1,300} and header [^\n]{1,300} differ",
            also=(IN_WORKER,),
            weight=20,
        ),
        Mark(
            r"bad object header version number|[Ww]rong [Bb]-tree signature|bad symbol table node signature|"
            r"bad local heap signature|bad heap free list|inflate\(\) failed|HDF5ExtError|"
            r"[Uu]nable to (?:synchronously )?open object \((?!object |component )|"
            r"Can't (?:synchronously )?read data \((?!no appropriate)|addr overflow, addr =",
            also=(IN_WORKER,),
            weight=20,
        ),
        Mark(
            r"bad object header version number|[Ww]rong [Bb]-tree signature|bad symbol table node signature|"
            r"bad local heap signature",
            also=(rf"\A[^\n]{{1,300}}\s*\Z|{ABOUT_TRAINING}",),
            never=(OTHERS, r"\bcorrupted\b"),
            weight=12,
        ),
        Mark(  # told in words
            r"(?i)\b(?:hdf5|h5py|h5 files?)\b",
            also=(
                r"(?i)\bdata ?loa?der|\bnum_workers\b|\bmultiple workers\b",
                (
                    r"(?i)\bnum_work\w*[^\n]{0,30}(?:>|larger|greater|more)|\bmultiple (?:processes|workers)\b|"
                    r"\bnot (?:thread|fork|process)[- ]safe\b"
                ),
            ),
            never=(FRAME, ERROR_LINE, POOLS, r"(?i)pickl|\bmemory\b|\bslow"),
            weight=5,
        ),
        Mark(r"(?i)\bbad CRC-32\b", also=(ABOUT_LOADERS,), never=(FRAME,), weight=12),
        Mark(_LMDB, also=(rf"{IN_WORKER}|{LOADER}",), weight=20),
        Mark(  # Python's own name for it, and no traceback that shows another program
            rf"lmdb\.\w+Error: [^\n]{{0,80}}(?:{_LMDB})",
            never=(OTHERS,),
            weight=12,
        ),
        Mark(
            r"zlib\.error: Error -[35] while decompressing|zstd[^\n]{0,40}(?:corrupt|Data corruption)|"
            r"LZ4F?[^\n]{0,40}(?:corrupt|failed)|invalid stored block lengths|incorrect header check",
            also=(IN_WORKER,),
            weight=18,
        ),
        Mark(r"tarfile\.ReadError|unexpected end of data", also=(IN_WORKER, r"tarfile"), weight=18),
        Mark(r"is already open in this process", also=(r"lmdb", LOADER), weight=20),
        Mark(
            r"SQLite objects created in a thread can only be used in that same thread|"
            r"database disk image is malformed|sqlite3\.\w+: disk I/O error",
            also=(IN_WORKER,),
            weight=20,
        ),
        Mark(
            r"DECRYPTION_FAILED_OR_BAD_RECORD_MAC|decryption failed or bad record mac|"
            r"lost synchronization with server|PGRES_TUPLES_OK and no message from the libpq|"
            r"SSL SYSCALL error: EOF detected|Commands out of sync",
            also=(IN_WORKER,),
            weight=20,
        ),
        Mark(
            r"seek of closed file|I/O operation on closed file|Bad file descriptor",
            also=(IN_WORKER,),
            never=(FEEDING, r"resource_sharer"),
            weight=14,
        ),
    ),
    rows=(11,),
)
