"""Memory that was to be page-locked is not.

What it finds
-------------
A loader with `device=` or `pin_memory=True` could not register its memory with the driver, or torch could not pin any. The log
has one line for each, and `loader.stats()["device"]["fallbacks"]` the same words.

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

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__,
    __doc__,
    severity="low",
    marks=(
        Mark(r"batches go through torch's pinned memory, because", weight=11),
        Mark(r"batches go to the device from pageable memory, because", weight=12),
    ),
)
