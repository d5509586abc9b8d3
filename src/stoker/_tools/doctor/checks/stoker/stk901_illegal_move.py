"""stoker contradicted itself.

What it finds
-------------
The scheduler was told something that cannot have happened: `IllegalMove`, with the whole story of the ticket. This is a
defect of stoker's.

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
Report it with the message: the story in it is what is needed to find the defect. `iter(loader)` starts anew;
`multiprocessing_context`, `split_batches=False` or torch's own loader get you on meanwhile.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__, __doc__, severity="high", marks=(Mark(r"stoker\.errors\.IllegalMove|^IllegalMove:", weight=32),)
)
