"""A worker exited without an error message.

What it finds
-------------
A worker process ended by itself: `sys.exit`, `os._exit`, an error while it was starting, or C code that called `exit`.

Why it hurts
------------
torch says `exited unexpectedly` and nothing else. The real error is above it in the log, in the worker's own traceback, or
was never printed.

Example
-------
```text
RuntimeError: DataLoader worker (pid(s) 15927) exited unexpectedly
```

Fix
---
Look for the worker's own error above it in the log. If there is none, run with `num_workers=0`: an error of the dataset
then shows its traceback. If 0 workers are fine, try 1 with `multiprocessing_context="spawn"` and look at stderr.

On Windows, on macOS and in notebooks it is usually the missing `if __name__ == "__main__":` (STK301) or a class that the
worker cannot import (STK302).
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.wording import LOADER, PIDS, told

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="A new worker takes its place; the error has the exit code, the sample, and the Python stack of the call that "
    "ended it.",
    marks=(
        Mark(rf"worker(?: {PIDS})? exited unexpectedly", also=(LOADER,), weight=8),
        Mark(
            rf"(?i)\bdata ?loader worker(?: {PIDS})? (?:exit(?:s|ed)?|quit|ended|died|terminated) unexpected",
            weight=8,
        ),
        told(r"workers? (?:\w+ ){0,2}(?:crash(?:es|ed)?|dies?|died|exit(?:s|ed)?)\b"),
        Mark(r"Caught SystemExit in DataLoader worker process", weight=14),
    ),
    rows=(21,),
)
