"""A forked process iterates over a loader with a device.

What it finds
-------------
`iter(loader)` with `device=` in a process that was forked from one that already used the device.

Why it hurts
------------
A driver's state does not survive a fork. No accelerator can be used in such a child, with any loader.

Example
-------
```python
loader = stoker.DataLoader(dataset, device="auto")
next(iter(loader))
multiprocessing.get_context("fork").Process(target=print, args=(loader,)).start()      # not one that iterates over it
```

Fix
---
Start the process with `spawn` or `forkserver`: it gets its own copy of the loader and opens the device itself. Or fork before
the first use of the device. The parent's batches, and copies that are under way, are not affected by the fork.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    marks=(Mark(r"was forked from one that uses \w+, and cannot use it", weight=30),),
)
