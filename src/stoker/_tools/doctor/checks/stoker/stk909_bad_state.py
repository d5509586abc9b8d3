"""A loader's state does not fit.

What it finds
-------------
`load_state_dict` was given something that is not a state of a stoker loader, is damaged, comes from another version, or
belongs to another dataset, sampler or batch size.

Why it hurts
------------
Resuming from it would repeat or leave out samples, so it is refused.

Example
-------
```python
loader.load_state_dict(checkpoint)              # the whole checkpoint: ValueError
```

Fix
---
```python
loader.load_state_dict(checkpoint["loader"])    # the loader's part of it
```

Give what `loader.state_dict()` returned, unchanged, to a loader with the same dataset, sampler and `batch_size`; the
message says which of them differs. Without a state the epoch starts from its beginning.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__,
    __doc__,
    severity="moderate",
    marks=(
        Mark(
            r"this is no state of a stoker loader|a state of a loader is a dict as state_dict\(\)|"
            r"this state is (?:truncated|damaged)|this state has format .{1,60} and this version of stoker reads|"
            r"the sampler's state (?:is not whole|has)|a state of [\w ]{1,40} is a dict, but got",
            weight=30,
        ),
    ),
)
