"""No good sample is left.

What it finds
-------------
`on_bad_sample` asks the loader to skip or replace bad samples, and every candidate was bad too.

Why it hurts
------------
When all samples fail, the cause is usually outside the samples: a wrong path, a lost mount, a missing library. Without this
error the loader would produce empty batches forever.

Example
-------
```text
stoker.errors.NoGoodSample: on_bad_sample='replace' found no good sample to put in the place of a bad one:
  dataset index 3: FileNotFoundError: …
```

Fix
---
Read the reasons in the message or in `loader.stats()`: they are usually all the same. Then fix that cause;
`on_bad_sample="raise"` shows the first with its traceback.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    marks=(
        Mark(
            r"stoker\.errors\.NoGoodSample|^NoGoodSample:|found no good sample to put in the place|"
            r"samples of the stream were bad without a good one between|"
            r"every sample of \d+ batches in a row was bad",
            weight=30,
        ),
    ),
)
