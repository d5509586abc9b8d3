"""This process may have few memory mappings, and torch needs one for every tensor.

What it finds
-------------
The tensors of batches that torch's loader may have received come near `vm.max_map_count`. When no loader is known: that limit
is below the kernel's usual 65530.

Why it hurts
------------
Each tensor that comes from a worker is a mapping of its own until it is freed. At the limit `mmap` fails with `Cannot allocate
memory`, however much memory is free, and so may the next thread or library. Loops that keep what they receive get there: 6553
batches of 10 tensors. Each also takes a descriptor, so that STK202 comes first unless `ulimit -n` is higher or the sharing
strategy is `file_system`.

Example
-------
```python
outputs = []
for batch in loader:              # a dict of 40 tensors
    outputs.append(batch)         # 65530 / 40: over after 1600 batches
```

Fix
---
Keep copies (`tensor.clone()`), numbers or one concatenated tensor instead of the batch's tensors. Or raise the limit, as root:
`sysctl -w vm.max_map_count=1048576` (on the host, when this is a container).
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding, counted
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.host.machine import MachineFacts
from stoker._tools.doctor.facts.samples import SampleFacts
from stoker._tools.doctor.facts.target import TargetFacts

_USUAL = 65530
_COMMAND = "sysctl -w vm.max_map_count=1048576"


def examine(
    machine: MachineFacts, target: TargetFacts | None = None, samples: SampleFacts | None = None
) -> Iterator[Finding]:
    """Against the tensors of this loader's batches; without a loader against what is usual."""
    limit = machine.max_maps
    if limit is None:
        return
    if target is not None and (target.loader.engine == "stoker" or not target.loader.num_workers):
        return
    if target is not None and samples is not None and samples.batch_tensors:
        loader, tensors = target.loader, samples.batch_tensors
        left = limit - (machine.maps or 0)
        fit = max(0, left // tensors)
        if fit >= 4 * (loader.window + 1):
            return
        yield CHECK.finding(
            f"a batch has {counted(tensors, 'tensor')}, each of which is a mapping; of {limit}, {left} are left for them: "
            f"{counted(fit, 'batch', 'batches')}. {loader.window} may be on their way, and batches that the loop keeps add to that",
            "Combine related tensors into one, or raise the limit as root.",
            severity="high" if fit <= loader.window + 1 else "moderate",
            edit=Edit(_COMMAND, kind="shown"),
            where="vm.max_map_count",
            numbers={
                "limit": limit,
                "left": left,
                "batch_tensors": tensors,
                "fit": fit,
                "window": loader.window,
            },
        )
    elif limit < _USUAL:
        yield CHECK.finding(
            f"{here(machine)}; {_USUAL} is usual",
            "Raise it, as root.",
            severity="low",
            edit=Edit(_COMMAND, kind="shown"),
            where="vm.max_map_count",
            numbers={"limit": limit, "maps": machine.maps},
        )


def here(machine: MachineFacts) -> str:
    """How many mappings this process may have."""
    if machine.max_maps is None:
        return ""
    now = "" if machine.maps is None else f", {machine.maps} are there now"
    return f"a process may have {machine.max_maps} memory mappings (vm.max_map_count){now}"


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="All batches lie in windows of one mapping; kept batches cost none.",
    examine=examine,
    marks=(
        Mark(
            r"unable to mmap \S{1,20} bytes from file </?(?:torch_[\w*]+|"
            r"filename not specified)>: Cannot allocate memory",
            weight=28,
        ),
        Mark(r"unable to mmap memory: you tried to mmap 0 ?GB", weight=24),
        Mark(r"unable to allocate shared memory\(shm\)[^\n]{0,200}Cannot allocate memory", weight=24),
    ),
    here=here,
    rows=(30,),
)
