"""The iterator's loader was closed.

What it finds
-------------
`next()` on an iterator after `loader.close()`, or in a process that was forked from the one that made it.

Why it hurts
------------
Its workers and the memory of its batches are gone, or belong to another process.

Example
-------
```python
iterator = iter(loader)
loader.close()
next(iterator)            # LoaderClosed
```

Fix
---
Call `iter(loader)` again: a closed loader starts new workers. In a forked child, call it in the child.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__,
    __doc__,
    severity="moderate",
    marks=(
        Mark(
            r"stoker\.errors\.LoaderClosed|^LoaderClosed:|the loader was closed while this iterator was in use|"
            r"this iterator's workers belong to process \d+",
            weight=30,
        ),
    ),
)
