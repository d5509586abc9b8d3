"""stoker detected an error in itself.

What it finds
-------------
The scheduler received an event that is impossible in its present state: `IllegalMove`, with the whole story of the
ticket. This is a bug in stoker.

Why it hurts
------------
It stops instead of handing out a wrong batch.

Example
-------
```text
stoker.errors.IllegalMove: planned twice: ticket 17 …
```

Fix
---
Report it with the message: the story in it shows the bug. `iter(loader)` starts anew. Until it is fixed, try another
`multiprocessing_context`, `split_batches=False` or torch's own loader.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__, __doc__, severity="high", marks=(Mark(r"stoker\.errors\.IllegalMove|^IllegalMove:", weight=32),)
)
