"""`pin_memory` has no effect here, or is missing where it would help.

What it finds
-------------
`pin_memory=True` on a machine without an accelerator, or for batches without tensors; and `pin_memory=False` on a machine that
has an accelerator. A loader of stoker's with `device=` is left alone: it page-locks what it needs.

Why it hurts
------------
Pinned memory lets copies to a device run beside the computation, with `.to(device, non_blocking=True)`. Without a device
torch warns and does nothing. For batches without tensors a thread goes through them and finds nothing to pin. With a device
and without pinning every copy waits.

Example
-------
```python
DataLoader(dataset, pin_memory=True)      # on a CPU: 'pin_memory' argument is set as true but no accelerator is found
```

Fix
---
`pin_memory=torch.accelerator.is_available()`, with `batch.to(device, non_blocking=True)` in the loop. Batches of a class of
your own need a `pin_memory` method. With stoker's loader `device="auto"` does both, in one copy that runs ahead.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.host.pinning import PinningFacts
from stoker._tools.doctor.facts.samples import SampleFacts
from stoker._tools.doctor.facts.target import TargetFacts


def examine(
    target: TargetFacts, pinning: PinningFacts, samples: SampleFacts | None = None
) -> Iterator[Finding]:
    """Only for a loader that somebody wrote: an assumed one pins nothing by nobody's choice."""
    if target.assumed or target.loader.device is not None:
        return
    site = target.loader.site
    numbers = {"devices": pinning.devices, "accelerator": pinning.accelerator}
    if not target.loader.pin_memory:
        if pinning.accelerator is not None and (samples is None or samples.batch_tensors):
            ours = target.loader.engine == "stoker"
            yield CHECK.finding(
                f"pin_memory=False, and there is an accelerator ({pinning.accelerator} × {pinning.devices}): copies to it wait",
                'Let the loader bring batches there: device="auto".'
                if ours
                else "Set pin_memory=True, and copy with .to(device, non_blocking=True).",
                edit=Edit('device="auto"', "", site, "argument")
                if ours
                else Edit("pin_memory=True", "pin_memory=False", site, "argument"),
                numbers=numbers,
            )
    elif pinning.accelerator is None:
        yield CHECK.finding(
            "pin_memory=True, and no accelerator is found here: torch warns and pins nothing",
            "Leave it out here; pin_memory=torch.accelerator.is_available() is right on every machine.",
            edit=Edit("pin_memory=False", "pin_memory=True", site, "argument"),
            numbers=numbers,
        )
    elif samples is not None and samples.indices and samples.batch_tensors == 0:
        yield CHECK.finding(
            "pin_memory=True, and a batch has no tensors: there is nothing to pin",
            "Set pin_memory=False, or give the class of your batches a pin_memory method.",
            edit=Edit("pin_memory=False", "pin_memory=True", site, "argument"),
            numbers=numbers | {"batch_tensors": 0},
        )


CHECK = Check(
    __name__,
    __doc__,
    severity="low",
    examine=examine,
    marks=(
        Mark(r"'pin_memory' argument is set as true but (?:no accelerator is found|not supported)", weight=2),
    ),
)
