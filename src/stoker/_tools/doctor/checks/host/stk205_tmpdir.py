"""The folder for temporary files does not suit sockets.

What it finds
-------------
`TMPDIR` (or `TEMP`, `TMP`) names a folder that is missing, cannot be written to, is full, or has a path of more than 75 bytes.

Why it hurts
------------
A worker of torch's hands a tensor over through a socket in that folder (`pymp-xxxxxxxx/listener-xxxxxxxx`, 32 bytes more). A
socket's path has 107 bytes: beyond that comes `AF_UNIX path too long` in a thread of the worker, and the loader waits for ever.
A folder that is missing when Python starts is passed over for `/tmp`, silently; one that is deleted later, as job systems do,
ends in the same wait. With the sharing strategy `file_system`, torch's manager process needs the folder too, and dies without
it.

Example
-------
```sh
export TMPDIR=/scratch/projects/vision-group/users/somebody/experiments/2024-05-resnet/tmp      # 76 bytes
python train.py
```

Fix
---
`export TMPDIR=/tmp` before Python starts, or any short folder of this user's on a local disk that lasts as long as the run.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding, size
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.host.machine import MachineFacts
from stoker._tools.doctor.facts.host.tmpdir import LONGEST_PATH_BYTES, SOCKET_BYTES, Tmpdir
from stoker._tools.doctor.facts.process import ProcessFacts
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.wording import ABOUT_TRAINING, FEEDING, LOADER, OTHERS, POOLS, TRAINERS

_LITTLE_BYTES = 16 << 20
_EDIT = Edit("export TMPDIR=/tmp", kind="shown")


def examine(
    machine: MachineFacts, target: TargetFacts | None = None, process: ProcessFacts | None = None
) -> Iterator[Finding]:
    """The folder that is asked for, and the one that Python takes."""
    folder = machine.tmpdir
    if folder is None:
        return
    if target is not None and (target.loader.engine == "stoker" or not target.loader.num_workers):
        return
    by_name = process is not None and process.sharing_strategy == "file_system"
    name = folder.variable or "the temporary folder"
    fault = _fault(folder)
    if fault:
        instead = f"Python uses {folder.used} instead" if folder.used else "there is no other"
        yield CHECK.finding(
            f"{name} is {folder.path}, which {fault}: {instead}",
            "Make that folder, or name another one before Python starts.",
            severity="high" if by_name or folder.used is None else "low",
            edit=_EDIT,
            where=folder.variable or "TMPDIR",
            numbers={"path": folder.path, "used": folder.used},
        )
    longest = _longest(machine)
    if folder.used is not None and len(folder.used.encode()) > longest:
        length = len(folder.used.encode())
        yield CHECK.finding(
            f"{folder.used} has {length} bytes; the sockets of torch's workers add {SOCKET_BYTES}, and {longest + SOCKET_BYTES} "
            "is the limit for a socket's path",
            f"Use a folder of {longest} bytes at most.",
            edit=_EDIT,
            where=folder.variable or "TMPDIR",
            numbers={"length_bytes": length, "longest_bytes": longest},
        )
    elif not fault and folder.free_bytes is not None and folder.free_bytes < _LITTLE_BYTES:
        yield CHECK.finding(
            f"{folder.path} has {size(folder.free_bytes)} left",
            "Make room there, or set TMPDIR to a folder that has some.",
            severity="low",
            where=folder.variable or "TMPDIR",
            numbers={"free_bytes": folder.free_bytes},
        )


def _fault(folder: Tmpdir) -> str:
    if not folder.exists:
        return "does not exist"
    if folder.free_bytes == 0:
        return "is full"
    return "" if folder.writable else "this user may not write to"


def _longest(machine: MachineFacts) -> int:
    # macOS has four bytes less.
    return LONGEST_PATH_BYTES - SOCKET_BYTES - (4 if machine.system == "Darwin" else 0)


def here(machine: MachineFacts) -> str:
    """What is the matter with the folder; "" when nothing is."""
    folder = machine.tmpdir
    if folder is None:
        return ""
    fault = _fault(folder)
    if not fault and folder.length_bytes > _longest(machine):
        fault = f"has {folder.length_bytes} bytes where {_longest(machine)} leave room for a socket's name"
    return f"{folder.variable or 'the temporary folder'} is {folder.path}, which {fault}" if fault else ""


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="Workers and batches need no path: descriptors are inherited or sent over socket pairs.",
    examine=examine,
    marks=(
        Mark(
            r"(?<!Thread:[ ]OSError:[ ])AF_UNIX path too long",  # another thread's, by its name
            also=(rf"{LOADER}|{TRAINERS}|{FEEDING}",),
            weight=25,
        ),
        Mark(
            r"AF_UNIX path too long",
            also=(rf"\A[^\n]{{0,300}}AF_UNIX[^\n]{{0,60}}\s*\Z|{ABOUT_TRAINING}",),
            never=(OTHERS, POOLS),
            weight=20,
        ),
        Mark(r"No usable temporary directory found in", also=(rf"{LOADER}|multiprocessing",), weight=22),
        Mark(
            r"FileNotFoundError: \[Errno 2\] No such file or directory(?:: '[^'\n]*(?:pymp-|listener-)[^'\n]*')?",
            also=(LOADER, r"resource_sharer|SocketClient|address_type|pymp-|forkserver\.py"),
            never=(r"torch_shm_manager",),
            weight=16,
        ),
        Mark(r"(?:Directory not empty|Device or resource busy): '[^'\n]*(?:pymp-|\.nfs0)[^'\n]*'", weight=14),
        Mark(r"No space left on device: '[^'\n]{0,200}pymp-", weight=20),
        Mark(r"the fork server needs a directory for its socket", weight=28),
    ),
    here=here,
    rows=(31,),
)
