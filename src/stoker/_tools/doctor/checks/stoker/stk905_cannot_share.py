"""An item cannot be shared.

What it finds
-------------
`stoker.share` found an item that cannot be packed: an open file, a generator, a lock, an object whose pickling fails.
The message has its path.

Why it hurts
------------
The object cannot be shared. Nothing was changed.

Example
-------
```python
rows = [{"name": name, "reader": open(name)} for name in ("a", "b")]
stoker.share(rows)          # list[0]['reader'] (TextIOWrapper) cannot be shared
```

Fix
---
Take that item out (keep the path and open it in the worker, STK103), or share the other attributes one by one.
`stoker.share(dataset, report=True)` shows what would be packed.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__,
    __doc__,
    severity="moderate",
    marks=(Mark(r"stoker\.errors\.CannotShare|^CannotShare:|\) cannot be (?:packed|shared): ", weight=30),),
)
