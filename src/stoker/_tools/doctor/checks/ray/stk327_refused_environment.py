"""Ray refuses the environment or the resources of the workers.

What it finds
-------------
`runtime_env`, `resources` or `strategy` of `stoker.Ray(...)` is not one that Ray takes, or the environment cannot be set up on a
node.

Why it hurts
------------
No actor can start, and every further one would fail in the same way. The loader raises at once and leaves nothing running.

Example
-------
```python
stoker.Ray(runtime_env={"working_dir": "/no/such/folder"})
```

Fix
---
The error has Ray's own words. Try the environment alone: `ray job submit --runtime-env-json '{...}' -- python -c "import stoker"`.
Packages that all jobs need belong on the nodes, not into `runtime_env`: setting them up takes minutes, for every new node.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    marks=(
        Mark(
            r"the runtime_env of stoker\.Ray\(\.\.\.\) cannot be set up|Ray refuses resources, runtime_env or strategy",
            weight=30,
        ),
    ),
)
