"""Workers end slowly.

What it finds
-------------
Leaving the loop, or the program, takes seconds; Ctrl-C prints a traceback per worker; workers outlive the program; with
persistent workers, the next `iter()` after a `break` waits for batches that are no longer needed.

Why it hurts
------------
torch joins its workers one after the other, up to 5 s each, and a worker looks for its parent only between two tasks.
Killed jobs leave workers behind that hold memory and descriptors. Batches in progress at a `break` are received in
order before the next epoch begins.

Example
-------
```text
Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f…>
    w.join(timeout=_utils.MP_STATUS_CHECK_INTERVAL)
KeyboardInterrupt:
```

Fix
---
It is harmless when the program ends anyway. To leave earlier: smaller batches or a smaller `prefetch_factor`, and `del
iterator` before the program ends. Workers that stayed behind have the parent 1: `ps -o pid,cmd --ppid 1` lists them; end
them by pid.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.wording import ABOUT_LOADERS, ERROR_LINE, FEEDING, FOREIGN

CHECK = Check(
    __name__,
    __doc__,
    severity="low",
    prevented="All workers leave within one deadline, and end with their parent in every case.",
    marks=(
        Mark(
            r"Exception ignored in: <(?:bound method|function) _?(?:MultiProcessing)?DataLoader(?:Iter)?\.__del__",
            also=(r"KeyboardInterrupt|w\.join\(|_shutdown_workers",),
            never=(r"can only (?:test|join) a child", FOREIGN),
            weight=7,
        ),
        Mark(  # interrupted, or dumped by py-spy, while workers are joined
            r"in (?:\w+\.)?_shutdown_workers(?:\([^)\n]*\))?\n(?:(?!Traceback|\w*(?:Error|Exception)\b)[^\n]*\n){0,40}?"
            r"KeyboardInterrupt"
            r"|^ *_shutdown_workers \([^)\n]{0,300}dataloader\.py:\d+\)",
            never=(r"can only (?:test|join) a child", FOREIGN),
            weight=9,
        ),
        Mark(  # the same, of several processes, its end cut off
            r"w\.join\(timeout=_utils\.MP_STATUS_CHECK_INTERVAL\)",
            also=(r"in _shutdown_workers\b",),
            never=(r"can only (?:test|join) a child", FOREIGN, ERROR_LINE, r"in _next_data\b"),
            weight=6,
        ),
        Mark(
            r"could not acquire lock for <[^\n]{1,80}> at interpreter shutdown, possibly due to daemon threads",
            also=(FEEDING,),
            never=(FOREIGN,),
            weight=9,
        ),
        Mark(  # told in words
            r"(?i)\b(?:ctrl|keyboard ?interrupt)\b[^\n]{0,120}(?:\bnot|n't) (?:kill|end|stop|exit|terminate)",
            also=(ABOUT_LOADERS,),
            weight=5,
        ),
        Mark(
            r"^Process (?:Python|Spawn|Fork)?Process-\d+:",
            also=(r"KeyboardInterrupt", r"in _worker_loop"),
            never=(FOREIGN,),
            weight=6,
        ),
    ),
    rows=(34, 35, 36),
)
