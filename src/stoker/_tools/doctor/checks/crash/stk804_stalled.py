"""A batch does not arrive.

What it finds
-------------
The loop waits for a batch far longer than batches took so far, or was stopped (Ctrl-C) while it waited.

Why it hurts
------------
A worker hangs: a lock that was held at the fork, a library whose threads died in it, a network mount that does not
answer, a batch that could not be sent. torch's loader waits forever and says nothing.

Example
-------
```text
  File ".../torch/utils/data/dataloader.py", line 1295, in _try_get_data
    data = self._data_queue.get(timeout=timeout)
KeyboardInterrupt
```

Fix
---
See what the workers are doing: `py-spy dump --pid PID` for each (`ps --ppid` lists them), or run it under `stoker run`,
which warns with the stacks. Then one suspect at a time: `num_workers=0`; `multiprocessing_context="forkserver"` (a lock
or a thread pool at fork: STK303); `pin_memory=False`; the default `collate_fn` (STK406).

If the wait was only long and not endless, batches are slow: STK705, `stoker profile`.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.wording import (
    ABOUT_TRAINING,
    ERROR_LINE,
    FOREIGN,
    FRAME,
    HANGING,
    NO_WORKERS,
    POOLS,
    told,
)

_WARNED = r"excessive worker creation|may hang\b|do not survive|stoker explain"
"""A warning says what might come."""

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="An unusually long wait becomes a warning with the worker, its sample and its Python stack. The "
    "causes that hang torch's loader (batches that cannot be sent, full descriptors, locks at fork) end in errors "
    "or do not occur.",
    marks=(
        Mark(r"has waited [\d.]+ s for batch \d+", weight=14),
        Mark(r"^KeyboardInterrupt", also=(r"in _try_get_(?:data|batch)|data_queue\.get\(",), weight=8),
        Mark(  # py-spy and faulthandler: the trainer waits for a batch
            r"^ *_try_get_data \([^)\n]{0,300}dataloader\.py:\d+\)|dataloader\.py\", line \d+ in _try_get_data",
            weight=8,
        ),
        Mark(r"WorkerStalled: ", weight=14),
        Mark(  # told in words: without workers it goes on
            rf"(?i)(?:\b|(?=[^\x00-\x7f])){HANGING}",
            also=(NO_WORKERS,),
            never=(FRAME, ERROR_LINE, FOREIGN, POOLS, _WARNED),
            weight=5,
        ),
        Mark(  # told in words, of a training whose loader is named elsewhere
            rf"(?i)(?:\b|(?=[^\x00-\x7f])){HANGING}",
            also=(r"(?i)\bdata ?loa?ders?\b(?! ?\d|:)", r"(?i)\btrain"),
            never=(FRAME, ERROR_LINE, FOREIGN, POOLS, _WARNED, r"(?i:init_process_group|\bddp\b)"),
            weight=5,
        ),
        Mark(  # told in words: OpenCV's threads
            r"cv2\.setNumThreads\(0\)",
            also=(rf"(?i)\b{HANGING}", ABOUT_TRAINING),
            never=(FRAME, ERROR_LINE, FOREIGN, POOLS),
            weight=5,
        ),
        told(HANGING, never=(r"excessive worker creation|do not survive", r"spawn_main")),
    ),
    rows=(5, 6),
)
