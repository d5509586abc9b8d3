"""An old iterator is cleaned up in a process that did not make it.

What it finds
-------------
`AssertionError: can only test a child process`, printed as `Exception ignored in: <function
_MultiProcessingDataLoaderIter.__del__ …>`. It can only be recognised once it has happened.

Why it hurts
------------
An old iterator with workers was still in memory when other workers were forked, because a traceback, a cycle or a
notebook's `Out` refers to it. The new workers inherit it. When their garbage collector frees it, its `__del__` checks
processes that are not their children. The batches are correct, but every worker may print this error between messages
that matter.

Example
-------
```python
def peek(loader):
    it = iter(loader)
    holder = {"it": it, "first": next(it)}
    holder["self"] = holder               # a cycle: only the garbage collector frees it

peek(train_loader)
for batch in val_loader: ...              # workers are forked while `it` is still there, and collect it
```

Fix
---
Free the old iterator before other workers start: `del it`, then `gc.collect()`. In notebooks, `%reset -f out` after an error.
`multiprocessing_context="forkserver"` inherits nothing.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.wording import FRAME, LOADER

CHECK = Check(
    __name__,
    __doc__,
    severity="low",
    prevented="An iterator knows which process it belongs to, and does nothing in others.",
    marks=(
        Mark(r"can only (?:test|join) a child process", also=(LOADER,), weight=24),
        Mark(r"can only (?:test|join) a child process", never=(FRAME,), weight=18),
    ),
    rows=(50,),
)
