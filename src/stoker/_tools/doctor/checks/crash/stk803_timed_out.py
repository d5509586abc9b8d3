"""No batch came within the timeout.

What it finds
-------------
The loader has `timeout=N`, and no batch arrived for N seconds.

Why it hurts
------------
torch's error does not say which worker was busy, or with what: a slow file system, one huge sample and a deadlock look
the same.

Example
-------
```text
RuntimeError: DataLoader timed out after 30 seconds
```

Fix
---
Find out which it is: under `stoker run train.py` the error has the worker, the sample and the Python stack, and
`py-spy dump --pid PID` shows the stack of a worker of torch's. A slow sample: raise `timeout`, or make it cheaper
(STK705). A worker that hangs: STK303, STK104.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.wording import told

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="The error names the worker, the dataset index it is on, and its Python stack. `timeout` works with 0 workers "
    "too.",
    marks=(
        Mark(r"DataLoader timed out after [\d.]+ seconds", weight=24),
        told(r"timed out|times out"),
        Mark(r"_queue\.Empty|queue\.Empty", also=(r"in _try_get_data", r"timed out"), weight=14),
    ),
    rows=(33,),
)
