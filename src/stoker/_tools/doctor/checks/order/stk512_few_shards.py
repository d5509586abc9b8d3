"""A stream has fewer shards than the loader has workers.

What it finds
-------------
A stream of Hugging Face `datasets` (or another one that gives whole shards to workers) that is made of fewer files or shards
than `num_workers`, times the number of ranks.

Why it hurts
------------
A shard is read by one worker. The workers that get none end at once: memory and start-up time are spent on them, and no more
shards are read at the same time than before.

Example
-------
```text
Too many dataloader workers: 16 (max is dataset.num_shards=2). Stopping 14 dataloader workers.
```

Fix
---
Lower `num_workers` to the number of shards, or split the data into more files, at least one for each worker of each rank:

```python
dataset = dataset.to_iterable_dataset(num_shards=64)      # a dataset on disk
DataLoader(dataset, num_workers=min(workers, dataset.num_shards))
```

`shuffle()` of a stream may lower `num_shards`: read it after all such calls.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__,
    __doc__,
    severity="low",
    marks=(Mark(r"Too many dataloader workers: \d+ \(max is dataset\.(?:num|n)_shards=\d+\)", weight=3),),
)
