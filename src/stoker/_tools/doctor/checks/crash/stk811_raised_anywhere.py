"""A worker's death was raised in unrelated code.

What it finds
-------------
The traceback of a worker's death ends in code that has nothing to do with data: `torch.save`, the forward pass, a logger.

Why it hurts
------------
torch notices a dead worker in a handler of SIGCHLD, which Python runs between any two instructions of the main thread.
The error interrupts whatever was running there, for example a checkpoint, and may leave it incomplete.

Example
-------
```text
  File "train.py", line 88, in save
  File ".../torch/utils/data/_utils/signal_handling.py", line 73, in handler
RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.
```

Fix
---
Look at how the worker died (the last line), not at where it was raised. Treat the interrupted work as incomplete: write
checkpoints to another name, and rename them when they are complete.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__,
    __doc__,
    severity="moderate",
    prevented="Only `next()` reports the death of a worker.",
    marks=(
        Mark(
            r'^ *File "(?![^"\n]{0,300}(?:selectors|connection|queues|dataloader|threading|popen_\w+)\.py)[^"\n]{1,300}", line '
            r'\d+, in [^\n]{1,120}\n(?:(?! *File )[^\n]*\n){0,3} *File "[^"\n]{1,300}signal_handling\.py", line \d+, in handler',
            weight=6,
        ),
    ),
    rows=(27,),
)
