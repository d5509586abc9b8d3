"""Batches that wait to be taken fill the memory.

What it finds
-------------
`prefetch_factor × num_workers` batches, each as large as one that was made here, take more than half of the available
memory, or more than `/dev/shm` has left. All local ranks count together.

Why it hurts
------------
torch's loader counts batches, not bytes. Sixteen workers make 32 batches ahead; at 400 MB each that is 12.5 GiB beside the
model, in shared memory, where a container has 64 MB by default. The end is `No space left on device`, a bus error or the OOM
killer, often only when the training step is slow enough for the window to fill.

Example
-------
```python
DataLoader(videos, batch_size=32, num_workers=16, prefetch_factor=4)      # 64 batches of 400 MB
```

Fix
---
A smaller `prefetch_factor` (2 is the default, 1 is allowed), fewer workers or smaller samples: uint8 instead of float32 is a
quarter, and the conversion costs nothing on the accelerator. stoker's loader bounds the window in bytes: a quarter of what is
available, or `memory_budget="2GiB"`.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding, counted, size
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.host.machine import MachineFacts
from stoker._tools.doctor.facts.samples import SampleFacts
from stoker._tools.doctor.facts.target import TargetFacts

_MUCH, _WANTED = 0.5, 0.3
"""Shares of the room: what is too much, and what is advised."""
_WORTH_BYTES = 64 << 20
"""A window that is smaller than this fits anywhere but in a full /dev/shm."""


def examine(machine: MachineFacts, samples: SampleFacts, target: TargetFacts) -> Iterator[Finding]:
    """The window in bytes against the room for it."""
    loader = target.loader
    workers, batch = loader.num_workers, samples.batch_bytes
    if not workers or not batch or loader.engine == "stoker":
        return
    factor = 2 if loader.prefetch_factor is None else loader.prefetch_factor
    ranks = machine.cpus.ranks if machine.cpus else 1
    # The factor counts what is being made too; one more is in the trainer's hands.
    window = (factor * workers + 1) * batch * ranks
    shm = machine.shm_free_bytes
    if shm is not None and 2 * loader.window * batch > shm:
        shm = None  # one rank alone fills it: STK201 says so
    for name, room in (("memory", machine.available_bytes), ("/dev/shm", shm)):
        if room is None or window <= _MUCH * room or (window < _WORTH_BYTES and window <= room):
            continue
        fits = max(1, int(_WANTED * room / (batch * workers * ranks)))
        less = fits < factor
        yield CHECK.finding(
            f"{factor} × {counted(workers, 'worker')} × {size(batch)} a batch"
            + (f" × {ranks} local ranks" if ranks > 1 else "")
            + f" = {size(window)} on their way, where {name} has {size(room)} left",
            (f"Set prefetch_factor={fits}" if less else "Use fewer workers or smaller batches")
            + ", or stoker's loader, which bounds them by bytes.",
            severity="high" if window > room else "moderate",
            edit=Edit(f"prefetch_factor={fits}", f"prefetch_factor={factor}", loader.site, kind="argument")
            if less and not target.assumed
            else None,
            where="/dev/shm" if name == "/dev/shm" else "prefetch_factor",
            numbers={
                "window_bytes": window,
                "room_bytes": room,
                "batch_bytes": batch,
                "prefetch_factor": factor,
                "workers": workers,
                "ranks": ranks,
            },
        )
        return


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="The window is bounded by bytes: a quarter of what is available, or memory_budget.",
    examine=examine,
    rows=(44,),
)
