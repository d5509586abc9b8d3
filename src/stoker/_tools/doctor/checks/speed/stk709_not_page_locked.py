"""Memory that was to be page-locked is not.

What it finds
-------------
A loader with `device=` or `pin_memory=True` could not register its memory with the driver, or torch could not pin any. The log
has one line for each, and `loader.stats()["device"]["fallbacks"]` the same words. The doctor tries both with a little memory.

Why it hurts
------------
From page-locked memory a copy runs beside everything else. Without registration a thread copies each batch once more, into
torch's pinned memory. Without pinned memory the copy over the bus is slower, and waits.

Example
-------
```text
loader: batches go through torch's pinned memory, because registering 38.5 MB with the driver failed (error 801)
```

Fix
---
`stoker doctor --device cuda` says what works here, and how fast. In a container allow locked memory:
`docker run --ulimit memlock=-1 --cap-add IPC_LOCK`. WSL and some virtual machines refuse registration: the thread is then the
best there is. Devices other than CUDA and ROCm have no function for it in Python.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.host.pinning import PinningFacts
from stoker._tools.doctor.facts.target import TargetFacts


def examine(target: TargetFacts, pinning: PinningFacts) -> Iterator[Finding]:
    """By an attempt to page-lock a little memory, on a machine with an accelerator."""
    loader = target.loader
    if target.assumed:
        return
    asked = "pin_memory=True" if loader.device is None else f'device="{loader.device}"'
    if pinning.pin_error:
        yield CHECK.finding(
            f"{asked}, and torch cannot pin memory here: {pinning.pin_error}",
            "Raise the limit on locked memory (ulimit -l), or give the container IPC_LOCK.",
            severity="moderate",
            where="pin_memory" if loader.device is None else "device",
        )
    elif pinning.register_error:
        yield CHECK.finding(
            f"{asked}, and memory cannot be registered with the driver: {pinning.register_error}",
            "Give the container IPC_LOCK. Until then a thread copies each batch once more, into torch's pinned memory.",
            where="device",
        )


CHECK = Check(
    __name__,
    __doc__,
    severity="low",
    examine=examine,
    marks=(
        Mark(r"batches go through torch's pinned memory, because", weight=11),
        Mark(r"batches go to the device from pageable memory, because", weight=12),
    ),
)
