"""An old iterator is cleaned up in a process that did not make it.

What it finds
-------------
`AssertionError: can only test a child process`, printed as `Exception ignored in: <function
_MultiProcessingDataLoaderIter.__del__ …>`. It can only be recognised once it has happened.

Why it hurts
------------
An iterator with workers was still referred to (by a traceback, a cycle, a notebook's `Out`) when other workers were forked.
They inherit it; when their garbage collector meets it, its `__del__` asks after processes that are not theirs. The message is
noise as a rule, but each worker prints it, and a worker that is interrupted there may take seconds to end.

Example
-------
```python
it = iter(train_loader)          # kept, never exhausted
next(it)
for batch in val_loader: ...     # its workers are forks that hold `it` too
```

Fix
---
Let go of the first iterator before other workers start: `del it`, or do not keep one. In notebooks, `%reset -f out` after an
error. `persistent_workers=True` on both loaders forks once. `multiprocessing_context="forkserver"` inherits nothing.
"""

from __future__ import annotations

from stoker._doctor.check import Check, Mark
from stoker._doctor.wording import FRAME, LOADER

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
