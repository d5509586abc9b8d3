"""The head node of the Ray cluster is gone.

What it finds
-------------
The head of the cluster has not answered for 8 seconds while a loader was in an epoch.

Why it hurts
------------
The head knows which nodes and actors there are. Without it no worker can be started or found again. Ray itself waits a minute
and then ends the whole training process. The loader raises before that, so a script can save its state.

Example
-------
```text
stoker.errors.ClusterError: the head node of the Ray cluster (10.0.0.1:6379) does not answer any more
```

Fix
---
Start the cluster again and continue from the last `state_dict()`: it does not depend on the executor, so
`executor="process"` can take over. Run the head on a machine that is not preempted; workers may be.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    marks=(Mark(r"the head node of the Ray cluster \(\S+\) does not answer any more", weight=30),),
)
