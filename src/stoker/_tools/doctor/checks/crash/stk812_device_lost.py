"""The device failed while batches were on their way.

What it finds
-------------
A copy to the device of `device=` raised an error of the driver: the device was lost, reset, or had failed before.

Why it hurts
------------
Drivers report errors late. The copy is often only the first call after a kernel of the training that failed, with an index
out of range for instance. From then on every use of the device fails in this process.

Example
-------
```text
torch.AcceleratorError: CUDA error: device-side assert triggered
STK812: the command "stoker explain STK812" has causes and fixes
```

Fix
---
Look for the first error, which may have come from another call: run with `CUDA_LAUNCH_BLOCKING=1`. `dmesg` has the driver's
own report (`NVRM: Xid`) of a device that fell off the bus or had a memory error. Start the process anew; the loader's state
(`loader.state_dict()`) can be loaded there.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    marks=(
        Mark(r"STK812", weight=12),
        Mark(r"AcceleratorError[^\n]*", also=(r"device_stager\.py",), weight=22),
    ),
)
