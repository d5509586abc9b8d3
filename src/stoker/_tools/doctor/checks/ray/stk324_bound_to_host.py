"""The dataset holds something that exists on this machine only.

What it finds
-------------
A dataset for `executor="ray"` holds a pipe, a socket, a queue or a lock of multiprocessing. Only processes of this machine can use
them.

Why it hurts
------------
Local workers inherit such an object. A worker on another host cannot, so the loader refuses to send it.

Example
-------
```python
class Counted(Dataset):
    def __init__(self):
        self.lock = multiprocessing.Lock()     # of this machine
```

Fix
---
Make it in `worker_init_fn`, or leave it out with `__getstate__`. Processes on several hosts need something else to agree by: a
file system, or a database. `executor="process"` keeps workers on this machine.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    marks=(Mark(r"the dataset holds something that exists on this machine only", weight=24),),
)
