"""worker_init_fn raised.

What it finds
-------------
The function given as `worker_init_fn` raised in a worker, before the first sample.

Why it hurts
------------
The error appears at the first `next()`, far from where the function is written; another `next()` then gives an unrelated
error.

Example
-------
```python
def seed(worker):
    np.random.seed(torch.initial_seed() + worker)    # ValueError: Seed must be between 0 and 2**32 - 1
```

Fix
---
Fix the function: the innermost frame of the traceback is in it. For seeds:
`np.random.seed(torch.initial_seed() % 2**32)`. The worker's copy of the dataset is
`torch.utils.data.get_worker_info().dataset`. Under spawn it lacks attributes that pickling leaves out.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.wording import IN_WORKER

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    marks=(
        Mark(r"^ *init_fn\(worker_id\)", weight=26),
        Mark(r"in worker_init_fn\b", also=(IN_WORKER,), weight=24),
        Mark(
            r"in \w*worker_init_fn\b", also=(r"\bworker_init_fn ?= ?[\w.]+\(",), weight=24
        ),  # called where it is to be named
        Mark(r"spec\.worker_init_fn\((?:boot\.)?worker\)|stoker: worker_init_fn raised", weight=26),
    ),
)
