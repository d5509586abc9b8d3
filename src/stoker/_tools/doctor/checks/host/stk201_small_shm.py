"""Shared memory is small.

What it finds
-------------
The batches that torch's loader may have on their way (`prefetch_factor` × `num_workers`, times the bytes of one batch) do not
fit into what is free in `/dev/shm`, or take more than half of it. When no loader is known: `/dev/shm` is smaller than 1 GiB.

Why it hurts
------------
torch puts every tensor of every batch into a file there. When it is full, a worker gets `No space left on device` or is
killed by SIGBUS; with your own `collate_fn` the loader can wait forever. Containers give it 64 MB by default.

Example
-------
64 pictures of 3×224×224 in float32 are 37 MiB. Two workers may have four such batches on their way: 147 MiB.

```sh
docker run image python train.py      # /dev/shm: 64 MB
```

Fix
---
`docker run --shm-size=8g`, or `--ipc=host`; in Kubernetes an `emptyDir` with `medium: Memory` mounted at `/dev/shm`.
Where the container cannot be changed: fewer workers, `prefetch_factor=1`, smaller batches (uint8 pictures, converted
after they arrive, take a quarter). Or use stoker's loader: its memory is not limited by the size of `/dev/shm`.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding, size
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.host.machine import MachineFacts
from stoker._tools.doctor.facts.samples import SampleFacts
from stoker._tools.doctor.facts.target import LoaderArguments, TargetFacts
from stoker._tools.doctor.wording import LOADER, PIDS, told

_ENOUGH_BYTES = 1 << 30
_LITTLE_BYTES = 256 << 20


def examine(
    machine: MachineFacts, target: TargetFacts | None = None, samples: SampleFacts | None = None
) -> Iterator[Finding]:
    """Against what this loader may have on its way; without a loader against what ordinary batches need."""
    total_bytes, free_bytes = machine.shm_bytes, machine.shm_free_bytes
    if total_bytes is None or free_bytes is None:
        return
    if target is not None and (target.loader.engine == "stoker" or not target.loader.num_workers):
        return
    if target is not None and samples is not None and samples.batch_bytes:
        yield from _against(target.loader, samples.batch_bytes, machine, free_bytes)
    elif total_bytes < _ENOUGH_BYTES:
        yield CHECK.finding(
            f"{here(machine)}. Batches of images need several times that",
            _remedy(machine, 8 << 30),
            severity="high" if total_bytes < _LITTLE_BYTES else "moderate",
            where="/dev/shm",
            numbers={"shm_bytes": total_bytes, "shm_free_bytes": free_bytes},
        )


def _against(
    loader: LoaderArguments, batch_bytes: int, machine: MachineFacts, free_bytes: int
) -> Iterator[Finding]:
    window_bytes = loader.window * batch_bytes
    if 2 * window_bytes <= free_bytes:
        return
    yield CHECK.finding(
        f"{loader.window} batches of {size(batch_bytes)} may be on their way ({loader.num_workers} workers), {size(window_bytes)} "
        f"in all; {here(machine)}",
        _remedy(machine, 4 * window_bytes),
        severity="high" if window_bytes > free_bytes else "moderate",
        where="/dev/shm",
        numbers={
            "window_bytes": window_bytes,
            "batch_bytes": batch_bytes,
            "batches": loader.window,
            "shm_bytes": machine.shm_bytes,
            "shm_free_bytes": free_bytes,
        },
    )


def _remedy(machine: MachineFacts, wanted_bytes: int) -> str:
    gib = -(-wanted_bytes >> 30)  # rounded up
    if machine.container == "kubernetes":
        how = f"Mount an emptyDir with medium: Memory and sizeLimit: {gib}Gi at /dev/shm."
    elif machine.container is not None:
        how = f"Start the container with --shm-size={gib}g."
    else:
        how = f"mount -o remount,size={gib}g /dev/shm, as root."
    return f"{how} Or use stoker's loader, which needs no room there."


def here(machine: MachineFacts) -> str:
    """How large it is on this machine."""
    if machine.shm_bytes is None or machine.shm_free_bytes is None:
        return ""
    return f"/dev/shm holds {size(machine.shm_bytes)}, of which {size(machine.shm_free_bytes)} are free"


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
            r"might be caused by insufficient shared memory|workers are out of shared memory",
            weight=28,
        ),
        Mark(rf"worker {PIDS} is killed by signal: [Bb]us error", weight=24),
        Mark(r"Unexpected bus error encountered in worker", weight=24),
        Mark(
            r"\[Errno 28\] No space left on device",
            also=(
                LOADER,
                r"synchronize\.py|shared_memory\.py|reductions\.py|/dev/shm|/torch_\d|/psm_|heap\.py",
            ),
            never=(r"torch[\\/]serialization\.py",),
            weight=24,
        ),
        Mark(  # no /dev/shm, or none that may be written: semaphores live there
            r"SemLock\([^\n]*\n(?:[^\n]*\n){0,6}?(?:OSError: \[Errno 38\]|PermissionError: \[Errno 13\]|"
            r"FileNotFoundError: \[Errno 2\])",
            also=(LOADER,),
            weight=24,
        ),
        Mark(r"^(?:Fatal Python error: )?Bus error(?: \(core dumped\))?\.?$", also=(LOADER,), weight=14),
        told(
            r"bus error|shm[- ]size|(?:insufficient|out of|increase) shared memory|/dev/shm (?:is )?(?:full|too small|limit)",
            weight=6,
        ),
        Mark(rf"DataLoader worker {PIDS} exited unexpectedly with exit code -7\b", weight=24),
    ),
    here=here,
    rows=(1, 2),
)
