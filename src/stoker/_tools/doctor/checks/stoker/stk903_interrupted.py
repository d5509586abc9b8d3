"""An exception interrupted the iterator, and the script called it again.

What it finds
-------------
Ctrl-C, a signal handler or a sampler raised an exception inside `next()`. The script caught it and called `next()` on the
same iterator again.

Why it hurts
------------
The exception may have lost a batch that was in progress. The iterator would wait for it forever, so it raises instead.

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
Call `iter(loader)` again; the loader and its workers are fine. To continue in mid-epoch, load the loader's `state_dict()`
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
            r"stoker\.errors\.Interrupted|^Interrupted: an exception|came while this iterator handed out work|"
            r"lost a batch that was in progress, so this iterator cannot continue",
            weight=30,
        ),
    ),
)
