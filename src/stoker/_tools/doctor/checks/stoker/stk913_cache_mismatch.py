"""A kept sample is not what the dataset makes.

What it finds
-------------
`verify=` made a sample again that `stoker.cache` had kept, or a result that `stoker.cached` had kept, and the two differ.

Why it hurts
------------
Training reads samples that the dataset would not make any more. The sample depends on something that is not part of the
dataset: a file that no Python code opens, a global variable, the time, the worker's number, a server.

Example
-------
```text
stoker.errors.CacheMismatch: sample 17 of Folder is kept in the cache, and made again it differs: it depends on something that is
not part of the dataset, such as a file, a global, the time or the worker.
```

Fix
---
Make what the sample depends on an attribute of the dataset: attributes are part of the cache's key. If the data changed behind
the dataset, remove the files in `path=` or use another `name=`. If samples are meant to change, do not keep them.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    marks=(Mark(r"stoker\.errors\.CacheMismatch|^CacheMismatch:", weight=30),),
)
