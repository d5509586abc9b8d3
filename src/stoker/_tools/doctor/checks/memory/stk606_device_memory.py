"""The device has no memory for the next batch.

What it finds
-------------
A batch could not be brought to the device of `device=`, because the device's memory is full.

Why it hurts
------------
The batch is lost, and the step with it. Besides the batch that the loop works on, `device_prefetch` batches are on the device
or on their way. A loop that keeps batches, or runs far ahead of the device, holds more.

Example
-------
```python
stoker.DataLoader(dataset, batch_size=512, device="cuda", device_prefetch=8)      # nine batches of 308 MB on the device
```

Fix
---
`device_prefetch=1` is the default; 0 brings each batch when it is asked for. `loader.stats()["device"]["ahead_bytes"]` says how
much is ahead. Fewer bytes: `uint8` images, made float on the device. Drop batches that are not used any more: `del batch`.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    marks=(
        Mark(r"STK606", weight=12),
        Mark(r"OutOfMemoryError[^\n]*", also=(r"device_stager\.py",), weight=22),
    ),
)
