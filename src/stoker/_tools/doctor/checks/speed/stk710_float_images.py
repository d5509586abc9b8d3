"""Images cross the bus as float32 where uint8 would do.

What it finds
-------------
Samples with float32 images (one, three or four channels) for a loader whose batches go to an accelerator.

Why it hurts
------------
An image comes from its file as `uint8`. As `float32` it is four times as large: in the worker's memory, in the copy to the
device, and on the way through every cache. Made float on the device, it costs a fraction of the time.

Example
-------
```python
to_float = lambda x: torch.as_tensor(x).float() / 255      # in the worker: four bytes for each
```

Fix
---
Return `uint8` from the dataset. On the device: `images = images.float().div_(255)`, and normalise there. The batch is the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding, size
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.host.pinning import PinningFacts
from stoker._tools.doctor.facts.samples import Leaf, SampleFacts
from stoker._tools.doctor.facts.target import TargetFacts

_CHANNELS = (1, 3, 4)
_SMALLEST_SIDE = 16
_WORTH_BYTES = 4 << 20
"""Of a batch. Less is hidden behind any step."""


def examine(target: TargetFacts, samples: SampleFacts, pinning: PinningFacts) -> Iterator[Finding]:
    """By shapes and dtypes. What the values are is not looked at."""
    loader = target.loader
    if pinning.accelerator is None and not loader.pin_memory:
        return
    images = [leaf for leaf in samples.leaves if _is_image(leaf)]
    batch_bytes = sum(leaf.data_bytes for leaf in images) * (loader.batch_size or 1)
    if batch_bytes < _WORTH_BYTES:
        return
    saved = batch_bytes * 3 // 4
    yield CHECK.finding(
        f"sample{images[0].path} is a float32 image of {'×'.join(map(str, images[0].shape))}: a batch of {loader.batch_size or 1} "
        f"takes {size(batch_bytes)} to the device, as uint8 {size(batch_bytes - saved)}",
        f"Return uint8 and make it float on the device: {size(saved)} less per batch.",
        where=f"sample{images[0].path}",
        numbers={"batch_bytes": batch_bytes, "saved_bytes": saved},
    )


def _is_image(leaf: Leaf) -> bool:
    if leaf.dtype not in ("float32", "torch.float32") or len(leaf.shape) != 3:
        return False
    first, middle, last = leaf.shape
    sides = (middle, last) if first in _CHANNELS else (first, middle) if last in _CHANNELS else (0, 0)
    return min(sides) >= _SMALLEST_SIDE


CHECK = Check(__name__, __doc__, severity="low", examine=examine)
