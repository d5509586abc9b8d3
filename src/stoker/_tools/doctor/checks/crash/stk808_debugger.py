"""A worker reached a breakpoint.

What it finds
-------------
`breakpoint()`, `pdb.set_trace()` or a debugger's step was reached inside a worker.

Why it hurts
------------
A worker has no terminal: its standard input is closed, so the debugger reads the end of a file and quits with `BdbQuit`.

Example
-------
```python
def __getitem__(self, index):
    breakpoint()          # num_workers=4: bdb.BdbQuit
```

Fix
---
Use `num_workers=0` to debug: the dataset then runs in the main process, with the terminal. To look into a live worker:
`py-spy dump --pid PID`.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.wording import ABOUT_LOADERS, ERROR_LINE, FRAME, HANGING, IN_WORKER, LOADER, POOLS

CHECK = Check(
    __name__,
    __doc__,
    severity="low",
    marks=(
        Mark(r"\bBdbQuit\b", also=(rf"{IN_WORKER}|{LOADER}",), weight=24),
        Mark(r"breakpoint\(\) has no terminal in a worker", weight=28),
        Mark(
            r"EOFError: EOF when reading a line|OSError: \[Errno 25\] Inappropriate ioctl",
            also=(IN_WORKER, r"pdb\.py|bdb\.py|debugger"),
            weight=20,
        ),
        Mark(  # told in words
            r"(?ai)\b(?:i?pdb|breakpoints?|set_trace|debug the data ?loader)\b",
            also=(ABOUT_LOADERS, rf"(?i)(?:\b|(?=[^\x00-\x7f])){HANGING}"),
            never=(FRAME, ERROR_LINE, POOLS, r"(?i)\bbackward\b|objc\[\d"),
            weight=6,
        ),
    ),
)
