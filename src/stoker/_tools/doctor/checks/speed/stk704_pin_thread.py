"""One thread pins all batches, and cannot keep up.

What it finds
-------------
Copying a batch into pinned memory takes one thread longer than the workers need to make one, by the bytes of a batch, the
seconds of a sample and what one thread copies here in a second.

Why it hurts
------------
Workers run side by side, the copy into pinned memory does not: torch has one pin thread in the training process, which
also has to take the GIL for each tensor. If it is the slowest part, more workers change nothing.

Example
-------
```python
DataLoader(float_images, batch_size=256, num_workers=16, pin_memory=True)    # 154 MB a batch
```

Fix
---
Fewer bytes: images as `uint8`, four times smaller than `float32`, made float and normalised on the device; half precision for
features; no padding to the longest. `pin_memory=False` where the copy to the device is the smaller part. stoker's loader with
`device=` copies from the workers' own memory: nothing is pinned besides.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from stoker._record.finding import Finding, duration
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.host.pinning import PinningFacts
from stoker._tools.doctor.facts.samples import SampleFacts
from stoker._tools.doctor.facts.target import TargetFacts

_WORTH_S = 0.001
"""A copy that takes less is hidden behind any step."""


def examine(target: TargetFacts, pinning: PinningFacts, samples: SampleFacts) -> Iterator[Finding]:
    """An estimate: the measured copy is one into plain memory."""
    loader = target.loader
    if loader.device is not None:
        return  # then nothing is pinned besides
    if not (loader.pin_memory and loader.num_workers) or not (samples.sample_s and samples.batch_bytes):
        return
    collate_s = median(samples.collate_s) if samples.collate_s else 0.0
    batch_s = median(samples.sample_s) * (loader.batch_size or 1) + collate_s
    made_s = batch_s / loader.num_workers
    copy_s = samples.batch_bytes / pinning.copy_bytes_s
    if copy_s < _WORTH_S or copy_s <= made_s:
        return
    without = (
        "" if pinning.accelerator else "; there is no accelerator here, so nothing is pinned on this machine"
    )
    floats = sum(leaf.data_bytes for leaf in samples.leaves if leaf.dtype in ("float32", "torch.float32"))
    yield CHECK.finding(
        f"copying a batch of {samples.batch_bytes / 1e6:.3g} MB takes one thread about {duration(copy_s)} "
        f"({pinning.copy_bytes_s / 1e9:.2g} GB/s measured here), and {loader.num_workers} workers make one in "
        f"{duration(made_s)}: the thread that pins is the limit (an estimate{without})",
        "Return uint8 and make it float on the device: a quarter of the bytes."
        if floats * 2 > sum(leaf.data_bytes for leaf in samples.leaves)
        else "Make batches smaller, or set pin_memory=False.",
        severity="moderate" if pinning.accelerator else "low",
        where="pin_memory",
        numbers={
            "batch_bytes": samples.batch_bytes,
            "copy_s": copy_s,
            "made_s": made_s,
            "copy_bytes_s": pinning.copy_bytes_s,
            "workers": loader.num_workers,
        },
    )


CHECK = Check(__name__, __doc__, severity="moderate", examine=examine)
