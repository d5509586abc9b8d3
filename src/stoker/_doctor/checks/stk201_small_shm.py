"""Shared memory is small.

What it finds
-------------
`/dev/shm` is smaller than the batches that torch's loader may have on their way, or smaller than 1 GiB when no loader is known.

Why it hurts
------------
torch puts every tensor of every batch into a file there. When it is full, a worker gets `No space left on device` or is killed by
SIGBUS. Containers give it 64 MB by default.

Example
-------
```sh
docker run image python train.py      # /dev/shm: 64 MB
```

Fix
---
`docker run --shm-size=8g`, or `--ipc=host`; in Kubernetes an `emptyDir` with `medium: Memory` mounted at `/dev/shm`. Or
use stoker's loader: its memory is not limited by the size of `/dev/shm`.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._core.finding import Finding
from stoker._doctor.check import Check, Mark
from stoker._doctor.facts.machine import Machine
from stoker._doctor.wording import LOADER

_ENOUGH_BYTES = 1 << 30


def examine(machine: Machine) -> Iterator[Finding]:
    """Without a loader: less than what ordinary batches need."""
    if machine.shm_bytes is not None and machine.shm_bytes < _ENOUGH_BYTES:
        yield CHECK.finding(
            here(machine),
            "Start the container with --shm-size=8g.",
            where="/dev/shm",
            numbers={"shm_bytes": machine.shm_bytes, "shm_free_bytes": machine.shm_free_bytes},
        )


def here(machine: Machine) -> str:
    """How large it is on this machine."""
    if machine.shm_bytes is None or machine.shm_free_bytes is None:
        return ""
    return (
        f"/dev/shm holds {machine.shm_bytes >> 20} MiB, of which {machine.shm_free_bytes >> 20} MiB are free"
    )


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="Batches travel in memory of their own (memfd), which /dev/shm does not limit.",
    examine=examine,
    marks=(
        Mark(
            r"(?:unable to (?:write to file|allocate shared memory\(shm\)|resize file|open shared memory object|"
            r"open file|mmap \d+ bytes)|shm_open|posix_fallocate)[^\n]{0,400}No space left on device",
            weight=30,
        ),
        Mark(r"unable to write to file </torch_", weight=28),
        Mark(
            r"unable to allocate shared memory\(shm\) for file", never=(r"Cannot allocate memory",), weight=28
        ),
        Mark(
            r"might be caused by insufficient shared memory \(shm\)|workers are out of shared memory",
            weight=28,
        ),
        Mark(r"worker \(pid\(?s?\)? ?[\d, ]+\) is killed by signal: Bus error", weight=24),
        Mark(r"Unexpected bus error encountered in worker", weight=24),
        Mark(
            r"\[Errno 28\] No space left on device",
            also=(
                LOADER,
                r"synchronize\.py|shared_memory\.py|reductions\.py|/dev/shm|/torch_|/psm_|heap\.py",
            ),
            never=(r"torch[\\/]serialization\.py",),
            weight=24,
        ),
        Mark(r"^(?:Fatal Python error: )?Bus error(?: \(core dumped\))?\.?$", also=(LOADER,), weight=14),
        Mark(
            r"DataLoader worker \(pid\(?s?\)? ?[\d, ]+\) exited unexpectedly with exit code -7\b", weight=24
        ),
    ),
    here=here,
    rows=(1, 2),
)
