"""The pinning thread died.

What it finds
-------------
`Pin memory thread exited unexpectedly`: the thread that copies batches into pinned memory ended with an error of its own.

Why it hurts
------------
The real error went to stderr, or nowhere: out of memory while pinning, a CUDA error, a batch with something that cannot be
pinned, descriptors that ran out.

Example
-------
```text
RuntimeError: Pin memory thread exited unexpectedly
```

Fix
---
Set `pin_memory=False` for a run: the real error then appears where it belongs. Look above this line for `Exception in
thread` or `CUDA error`. Out of descriptors is STK202; a batch on the device already is STK304.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="Its staging thread hands every error to the `next()` of the batch that it belongs to.",
    marks=(
        Mark(r"Pin memory thread exited unexpectedly", weight=12),
        Mark(r"not enough values to unpack \(expected 2, got 0\)", also=(r"in _pin_memory_loop",), weight=11),
        Mark(r"in _pin_memory_loop\n *idx, data = r\nValueError: ", weight=10),  # the same, cut off
        Mark(r"Caught \w+ in pin memory thread for device", weight=11),
    ),
    rows=(28,),
)
