"""The dataset uses the accelerator.

What it finds
-------------
Making a sample initialised CUDA (or another accelerator), a sample came back on a device, or it raised
`Cannot re-initialize CUDA in forked subprocess`.

Why it hurts
------------
A forked worker cannot use a CUDA context of its parent: it raises at the first sample. Under spawn and forkserver each
worker opens a context of its own, which takes several hundred MB of the device's memory per worker, and batches on a device
travel through handles that die with the worker. `pin_memory=True` refuses tensors that are not on the CPU.

Example
-------
```python
def __getitem__(self, index):
    return self.images[index].cuda() / 255
```

Fix
---
Return CPU tensors. Move the whole batch in the training loop, `batch.to(device, non_blocking=True)` with `pin_memory=True`,
and do device-side transforms there, on the batch. This holds for every loader, stoker's too.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.samples import SampleFacts
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.wording import (
    ABOUT_LOADERS,
    FEEDING,
    FRAME,
    IN_WORKER,
    LOADER,
    OTHERS,
    POOLS,
    RANKS,
    TRAINERS,
)

_ADVICE = "Return CPU tensors from the dataset, and move the batch in the training loop: batch.to(device, non_blocking=True)."
_REFUSED = "in forked subprocess"


def examine(samples: SampleFacts, target: TargetFacts) -> Iterator[Finding]:
    """By what came back, else by what was raised, else by what was opened meanwhile."""
    severity = "high" if target.loader.num_workers else "low"
    on_device = [leaf for leaf in samples.leaves if leaf.device not in ("cpu", "meta")]
    refused = [
        each for each in samples.failures if _REFUSED in each.text and "Cannot re-initialize" in each.text
    ]
    if on_device:
        leaf = on_device[0]
        yield CHECK.finding(
            f"sample{leaf.path} lies on {leaf.device}: {len(on_device)} of {len(samples.leaves)} values of a sample do",
            _ADVICE,
            severity=severity,
            where=f"sample{leaf.path}",
            numbers={"values_on_device": len(on_device), "device": leaf.device},
        )
    elif refused:
        yield CHECK.finding(
            f"sample {refused[0].index} raised {refused[0]}",
            _ADVICE,
            severity=severity,
            where=f"dataset[{refused[0].index}]",
            numbers={"index": refused[0].index, "failures": len(refused)},
        )
    elif samples.uses_accelerator:
        yield CHECK.finding(
            f"making {len(samples.indices)} samples initialised an accelerator, though none of them lies on it",
            _ADVICE,
            severity=severity,
            where="dataset",
            numbers={"samples": len(samples.indices)},
        )


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    examine=examine,
    marks=(
        Mark(
            r"Cannot re-initialize (?:CUDA|XPU|HPU|NPU|\w+) in forked subprocess", also=(LOADER,), weight=30
        ),
        Mark(
            r"Cannot re-initialize \w+ in forked subprocess",
            also=(TRAINERS,),
            never=(RANKS, POOLS),
            weight=20,
        ),
        Mark(r"(?i)cannot re-initialize (?:cuda|xpu) in forked subprocess", never=(OTHERS, POOLS), weight=25),
        Mark(  # a process dies of it in C++: a forked one that frees or uses a tensor of its parent's
            r"c10::\w*Error'\s{1,40}what\(\):\s{1,40}CUDA error: initialization error",
            never=(OTHERS, POOLS),
            weight=22,
        ),
        Mark(
            r"(?:CUDA error|cuda runtime error \(3\) ?|error=3 ?): initialization error|CUDA_ERROR_NOT_INITIALIZED",
            also=(IN_WORKER,),
            weight=26,
        ),
        Mark(r"CUDA error: initialization error", also=(ABOUT_LOADERS,), never=(FRAME,), weight=14),
        Mark(  # a title
            r"(?i)\bcuda (?:error: )?initiali[sz]ation error\b[^\n]{0,80}\bdata ?loader|"
            r"\bdata ?loader\b[^\n]{0,80}\bcuda (?:error: )?initiali[sz]ation error\b",
            weight=20,
        ),
        Mark(r"_share_filename_: only available on CPU", never=(POOLS,), weight=22),
        Mark(  # told in words
            r"(?i)\bcuda context\b",
            also=(r"(?i)\bfork", r"(?i)data ?loader|\bnum_workers\b"),
            never=(FRAME, POOLS),
            weight=6,
        ),
        Mark(r"storage\._share_cuda_\(\)", also=(FEEDING,), weight=24),
        Mark(
            r"cannot pin '[\w.]*cuda[\w.]*' only (?:dense )?CPU (?:tensors|memory) can be pinned", weight=26
        ),
        Mark(
            r"cannot pin '[\w.]+' only (?:dense )?CPU (?:tensors|memory) can be pinned",
            also=(LOADER,),
            weight=24,
        ),
        Mark(r"Caught OutOfMemoryError in DataLoader worker process", weight=20),
        Mark(
            r"in DataLoader worker process \d+\.\nOriginal Traceback[^\n]*\n(?:(?!Traceback)[^\n]*\n){0,80}?"
            r"(?:\w+\.)*\w+: CUDA (?:error: )?out of memory",
            weight=20,
        ),
        Mark(r"uses the accelerator inside a worker", weight=28),
    ),
    rows=(22,),
)
