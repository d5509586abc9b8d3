"""Samples have different shapes and do not go into one batch.

What it finds
-------------
Two samples whose tensors, arrays or lists differ in shape or length at the same place, which the loader's own `collate_fn`
refuses to put together. A `collate_fn` that pads is tried, and is fine.

Why it hurts
------------
torch raises `stack expects each tensor to be equal size` without workers and
`Trying to resize storage that is not resizable` with them, and names neither the key nor the samples. It happens only
when a shuffled epoch puts two such samples into one batch: after an hour, or only in some runs.

Example
-------
```python
def __getitem__(self, index):
    return read_image(self.paths[index])       # as large as the file: (3, 224, 224), (3, 180, 224), ...
```

Fix
---
Bring them to one size in the dataset (resize, crop, pad), or pad a batch to its longest sample in a `collate_fn`:

```python
def padded(samples):
    rows, labels = zip(*samples)
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.tensor(labels)
```

stoker's loader raises as well, and says for every `num_workers` which key, which shapes and which indices.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.samples import SampleFacts, collation
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.wording import COLLATION, FRAME, LOADER, told


def examine(samples: SampleFacts, target: TargetFacts | None = None) -> Iterator[Finding]:
    """Every place where shapes or lengths differ and collation fails. A dataset alone may yet get a collate_fn that pads."""
    assumed = target is not None and target.assumed
    for each in samples.differences:
        if each.what not in ("shape", "length") or each.collates:
            continue
        what = "shape" if each.what == "shape" else "length"
        yield CHECK.finding(
            f"{each.text(what)}; {collation(assumed)} does not take them together",
            "Bring samples to one size in the dataset, or pass a collate_fn that pads "
            "(torch.nn.utils.rnn.pad_sequence for sequences).",
            severity="low" if assumed else "high",
            where=f"sample{each.path}",
            numbers={**each.numbers, "tried": len(samples.indices)},
        )


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    examine=examine,
    marks=(
        Mark(r"samples have different (?:shapes|lengths)", weight=30),
        Mark(r"stack expects each tensor to be equal size", also=(COLLATION,), weight=26),
        Mark(  # the frames of collation were cut off
            r"stack expects each tensor to be equal size",
            also=(rf"{LOADER}|\b(?:one|show)_batch\(",),
            never=(r"\b__getitems?__\b|\bCaught \w+ in DataLoader",),
            weight=20,
        ),
        Mark(
            r"stack expects each tensor to be equal size",
            never=(FRAME, r"samplers?\.py\", line \d+, in __iter__"),  # a sampler stacks indices
            weight=20,
        ),
        Mark(r"Trying to resize storage that is not resizable", also=(rf"{COLLATION}|{LOADER}",), weight=26),
        Mark(r"Trying to resize storage that is not resizable", never=(FRAME,), weight=20),
        Mark(
            r"Sizes of tensors must match except in dimension [01]|Tensors must have same number of dimensions",
            also=(COLLATION, LOADER),
            weight=24,
        ),
        Mark(r"each element in list of batch should be of equal size", weight=26),
        Mark(r"can't use batches of different size with `?dispatch_batches=True", weight=24),  # Accelerate
        told(
            r"(?:different|varying|variable|unequal) (?:\w+ )?(?:sizes?|shapes?|dimensions?)\b[^\n]{0,60}"
            r"\b(?:batch|collat\w+|stack\w*)"
        ),
        Mark(r"inconsistent tensor sizes?", also=(COLLATION, LOADER), weight=24),
        Mark(
            r"all input arrays must have the same shape|setting an array element with a sequence|"
            r"could not broadcast input array from shape",
            also=(r"collate", LOADER),
            weight=20,
        ),
    ),
    rows=(23,),
)
