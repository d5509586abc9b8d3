"""Arguments of the loader contradict each other.

What it finds
-------------
An error of the loader's constructor: arguments that only make sense with workers and `num_workers=0` (`prefetch_factor`,
`persistent_workers`, `multiprocessing_context`), an order given twice (`sampler` and `shuffle`, `batch_sampler` and `batch_size`),
an order for a stream, a value that cannot be, or an argument that is changed after the loader was made.

Why it hurts
------------
The loader is not made. It often appears only when `num_workers` is set to 0 to look for another failure.

Example
-------
```python
DataLoader(dataset, num_workers=0, prefetch_factor=4)
# ValueError: prefetch_factor option could only be specified in multiprocessing.
```

Fix
---
Leave out the argument that the message names. If `num_workers` is an option of the script, give the others only with
workers:

```python
workers = {"persistent_workers": True, "prefetch_factor": 4}
DataLoader(dataset, num_workers=n, **(workers if n > 0 else {}))
```

With `batch_sampler` leave out `batch_size`, `shuffle`, `sampler` and `drop_last`; with `sampler` leave out `shuffle`. The order
of an `IterableDataset` is its own: shuffle inside it. Instead of changing a loader, make a new one.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__,
    __doc__,
    severity="moderate",
    marks=(
        Mark(
            r"prefetch_factor option could only be specified in multiprocessing|"
            r"persistent_workers option needs num_workers > 0|"
            r"multiprocessing_context can only be used with multi-process loading|"
            r"multiprocessing_context option should (?:specify a valid start method|be a valid context)|"
            r"(?:num_workers|timeout|prefetch_factor) option (?:should be non-negative|cannot be negative)|"
            r"sampler (?:option )?is mutually exclusive with shuffle|"
            r"batch_sampler (?:option )?is mutually exclusive with batch_size|"
            r"batch_size=None option disables auto-batching and is mutually exclusive|"
            r"DataLoader with IterableDataset: expected unspecified|"
            r"attribute should not be set after \w{1,80} is initialized",
            weight=24,
        ),
        Mark(
            r"assert self\._timeout == 0\s{1,40}(?:[~^]+\s{1,40})?AssertionError",
            also=(r"_SingleProcessDataLoaderIter|dataloader\.py",),
            weight=22,
        ),
    ),
)
