"""A trace cannot be judged.

What it finds
-------------
The file is not a trace of `torch.profiler`, is cut off, or shows no training steps.

Why it hurts
------------
Where the time went cannot be read from it.

Example
-------
```sh
stoker report trace.json     # has no list of events ('traceEvents')
```

Fix
---
Write one with `prof.export_chrome_trace("trace.json")` or `tensorboard_trace_handler`, over at least 3 steps, with
`prof.step()` after each. Or let `stoker profile train.py` measure the run.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__,
    __doc__,
    severity="low",
    marks=(Mark(r"stoker\.errors\.TraceError|^TraceError:|is no trace: it", weight=30),),
)
