"""The device of a loader is not there.

What it finds
-------------
`device=` names a device that this torch, this machine or this process does not have.

Why it hurts
------------
No batch can arrive there. The loader says so at `iter()`, before it starts a worker.

Example
-------
```python
stoker.DataLoader(dataset, device="cuda:8")      # there are 8: the last one is cuda:7
```

Fix
---
`python -c "import torch; print(torch.accelerator.current_accelerator(), torch.accelerator.device_count())"` says what there
is. `device="auto"` takes the accelerator that torch has, or the CPU. Under a launcher `device="cuda"` is the current device:
call `torch.accelerator.set_device_index(local_rank)` first. A variable such as `CUDA_VISIBLE_DEVICES` may hide devices.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    marks=(
        Mark(r"device='?[^\n]{1,60} is not there: (?:torch|this process sees)", weight=30),
        Mark(r"device='?[^\n]{1,60} is no device of this torch", weight=30),
    ),
)
