"""The code writes to shared data.

What it finds
-------------
The script tried to change something that `stoker.share` made: an item set, a list appended to, an array written.

Why it hurts
------------
All workers read the same pages. Some of them would see a write sooner than others, so it is refused.

Example
-------
```python
dataset.names = stoker.share(names)
dataset.names.append("one more")     # SharedReadOnly
```

Fix
---
Make a private copy where it is to change (`names = names.copy()`; `list(names)`), or change the data before it is shared.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__,
    __doc__,
    severity="moderate",
    marks=(
        Mark(
            r"stoker\.errors\.SharedReadOnly|^SharedReadOnly:|is shared by all workers and read-only",
            weight=30,
        ),
    ),
)
