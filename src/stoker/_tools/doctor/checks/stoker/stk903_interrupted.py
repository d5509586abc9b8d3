"""An exception came while work was handed out.

What it finds
-------------
Ctrl-C, a signal handler or a sampler raised in the middle of an iterator's accounts, was caught, and `next()` was called
again.

Why it hurts
------------
What was lost in that moment would be waited for without end, so the iterator refuses to go on.

Example
-------
```python
try:
    batch = next(iterator)
except KeyboardInterrupt:
    batch = next(iterator)      # Interrupted
```

Fix
---
Call `iter(loader)` again; the loader and its workers are fine. To go on within the epoch, load the loader's `state_dict()`
first.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__,
    __doc__,
    severity="low",
    marks=(
        Mark(
            r"stoker\.errors\.Interrupted|^Interrupted: an exception|came while this iterator handed out work",
            weight=30,
        ),
    ),
)
