"""The dataset holds more tensors than descriptors can be sent.

What it finds
-------------
Tensors on the dataset, counted by their storages, if torch's loader has to send them: more than 245 under forkserver,
or more than this process may still open under spawn. Views of one tensor count once. Arrays do not count.

Why it hurts
------------
torch moves every tensor that is sent into shared memory of its own and passes one descriptor for each. forkserver takes at
most 253 descriptors in one message: from 246 tensors on the server ends with `EOFError`, from 248 on `iter(loader)` raises
`ValueError: too many fds`. Under spawn every tensor keeps a descriptor open in the parent, until `Too many open files`.

Example
-------
```python
class Features(Dataset):
    def __init__(self, files):
        self.features = [torch.load(file) for file in files]     # 300 tensors
```

Fix
---
Use one tensor instead of many: `torch.stack(self.features)`, or `torch.cat` with a table of offsets. NumPy arrays need
no descriptors. stoker's loader sends all tensors in one file.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.host.machine import MachineFacts
from stoker._tools.doctor.facts.scan import ScanFacts
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.wording import FRAME, LOADER

_FORKSERVER = 245
"""So many arrive on torch 2.13 beside the descriptors of the loader's own queues; the kernel takes 253 in one message."""

_OWN = 16
"""Descriptors that a loader with one worker needs beside."""


def examine(scan: ScanFacts, target: TargetFacts, machine: MachineFacts | None = None) -> Iterator[Finding]:
    """Forked workers inherit tensors without descriptors."""
    loader = target.loader
    if loader.engine == "stoker" or not loader.num_workers or not scan.storages:
        return
    if loader.start_method == "forkserver":
        limit, why = _FORKSERVER, f"forkserver passes at most {_FORKSERVER} with one process"
    elif loader.start_method == "spawn" and machine is not None and machine.descriptors is not None:
        limit = max(0, machine.descriptors - (machine.descriptors_open or 0) - _OWN * loader.num_workers)
        why = f"this process may open {limit} more of {machine.descriptors}"
    else:
        return
    if scan.storages <= limit:
        return
    about = "about " if scan.about else ""
    most = f", most of them in {scan.most_tensors}" if scan.most_tensors else ""
    yield CHECK.finding(
        f"the dataset holds {about}{scan.storages:,} tensors with memory of their own{most}: torch sends a descriptor for each "
        f"under {loader.start_method}, and {why}",
        "Put them into one tensor (torch.stack, torch.cat) or into NumPy arrays; stoker's loader sends them in one file.",
        edit=Edit("from stoker import DataLoader", None, loader.site, "import"),
        where=scan.most_tensors or "dataset",
        numbers={
            "tensors": scan.tensors,
            "storages": scan.storages,
            "limit": limit,
            "start_method": loader.start_method,
        },
    )


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="All tensors of the dataset travel in one file, which costs one descriptor.",
    examine=examine,
    marks=(
        Mark(r"ValueError: too many fds", also=(rf"{LOADER}|forkserver|spawnv_passfds",), weight=25),
        Mark(r"bad value\(s\) in fds_to_keep", also=(rf"{LOADER}|forkserver|spawnv_passfds",), weight=25),
        Mark(r"^ValueError: (?:too many fds|bad value\(s\) in fds_to_keep)", never=(FRAME,), weight=20),
    ),
    rows=(20,),
)
