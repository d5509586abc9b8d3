"""Tensors travel as named files (`file_system`).

What it finds
-------------
`torch.multiprocessing.set_sharing_strategy("file_system")` is in force on a system that has the better `file_descriptor`.

Why it hurts
------------
Every tensor is a file in `/dev/shm` that is opened by its name. A process that is killed leaves its files there, and a file may
be deleted before the receiver has opened it: `No such file or directory`. A helper process (`torch_shm_manager`) deletes what
is left, if it is not killed too and `TMPDIR` suits its socket. People set it against `Too many open files`, which has a better
cure.

Example
-------
```python
torch.multiprocessing.set_sharing_strategy("file_system")     # copied from an answer to "received 0 items of ancdata"
```

Fix
---
Delete the line and raise the limit of open files instead:

```python
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
```
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.host.machine import MachineFacts
from stoker._tools.doctor.facts.process import ProcessFacts
from stoker._tools.doctor.facts.target import TargetFacts

_CALL = 'torch.multiprocessing.set_sharing_strategy("file_system")'


def examine(machine: MachineFacts, process: ProcessFacts, target: TargetFacts) -> Iterator[Finding]:
    """Only where there is a choice: macOS has no other strategy."""
    if process.sharing_strategy != "file_system" or machine.system != "Linux":
        return
    if target.loader.engine == "stoker" or not target.loader.num_workers:
        return
    hard = machine.descriptors_hard
    room = (
        ""
        if hard is None
        else f"; this process may open {'any number of' if hard >= 1 << 62 else hard} files"
    )
    yield CHECK.finding(
        f"the sharing strategy is file_system: every tensor of a batch is a file in /dev/shm{room}",
        f"Delete {_CALL} and raise RLIMIT_NOFILE to its hard limit instead.",
        where="torch.multiprocessing",
        numbers={"sharing_strategy": process.sharing_strategy, "descriptors_hard": hard},
    )


CHECK = Check(
    __name__,
    __doc__,
    severity="moderate",
    prevented="Batches do not use torch's sharing at all.",
    examine=examine,
    marks=(
        Mark(
            r"unable to open (?:shared memory object|file) </?(?:torch_\w+|"
            r"[\w./-]*torch_\w+)> in read[-/]write mode: No such file or directory",
            weight=28,
        ),
        Mark(r"could not unlink the shared memory file", weight=24),
        Mark(
            r"(?:error executing )?torch_shm_manager(?: at \"[^\"\n]{1,300}\")?[^\n]{0,80}(?:[Ee]rror|failed|"
            r"no response|could not|Connection refused|unable)|"
            r"error executing torch_shm_manager|no response from torch_shm_manager|Unable to find torch_shm_manager",
            weight=22,
        ),
        Mark(r"Could not generate a random directory for manager socket", weight=22),
    ),
    rows=(29,),
)
