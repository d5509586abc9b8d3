"""The training loop copies batches to the device and waits.

What it finds
-------------
A loop over a loader that calls `.to(device)` or `.cuda()` on its batch without `non_blocking=True`: by the script's text. And, by
`stoker doctor --device`, a device on which copies and computing do not overlap.

Why it hurts
------------
Each such call stops the loop until the batch has crossed the bus, tensor by tensor, and until all work before it is done. The
device has nothing to do meanwhile. A batch of 38 MB takes 3 ms on a good bus, at every step.

Example
-------
```python
for images, labels in DataLoader(dataset, batch_size=64):
    images, labels = images.to("cpu"), labels.to("cpu")      # with "cuda" each call waits
```

Fix
---
With stoker's loader let it bring the batches: `device="auto"`. One copy per batch then runs ahead, while the device computes, and
the two `.to` calls cost nothing. With torch's loader: `pin_memory=True` and `.to(device, non_blocking=True)`.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding, counted
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.host.pinning import PinningFacts
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.sources.copies import waiting_copies


def examine(target: TargetFacts, pinning: PinningFacts) -> Iterator[Finding]:
    """By the text of the script that has the loader."""
    found = waiting_copies(target.source)
    if not found or target.assumed or target.loader.device is not None:
        return  # with device= the calls find the batch in place
    first = found[0]
    more = f", and {counted(len(found) - 1, 'more')}" if len(found) > 1 else ""
    ours = target.loader.engine == "stoker"
    yield CHECK.finding(
        f"line {first.line} copies the batch and waits: {first.text}{more}",
        'Let the loader bring batches to the device: device="auto".'
        if ours
        else "Add non_blocking=True, and pin_memory=True to the loader; stoker's loader does it with device=.",
        severity="moderate" if pinning.accelerator else "low",
        where=f"line {first.line}",
        edit=Edit('device="auto"', "", target.loader.site, "argument") if ours else None,
        numbers={"copies": len(found)},
    )


CHECK = Check(__name__, __doc__, severity="moderate", examine=examine)
