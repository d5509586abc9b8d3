"""Changes to the dataset do not reach persistent workers.

What it finds
-------------
A loader with `persistent_workers=True`, and a script that assigns to an attribute of its dataset within a loop or in a function
that is called for epochs, or calls the dataset's `set_epoch` there; or a dataset class that has a `set_epoch` at all.

Why it hurts
------------
Workers hold the copy of the dataset they were started with. Without `persistent_workers` each epoch starts new ones, and
changes made in between are seen. With it, no change is ever seen: curricula stand still, `set_epoch` has no effect, and
nothing says so.

Example
-------
```python
loader = DataLoader(dataset, num_workers=4, persistent_workers=True)
for epoch in range(90):
    dataset.set_epoch(epoch)              # the workers go on with epoch 0
    dataset.crop = 128 if epoch < 30 else 224
    for batch in loader: ...
```

Fix
---
`persistent_workers=False` under torch, or a value in shared memory: `self.epoch = torch.zeros((),
dtype=torch.int64).share_memory_()` with `self.epoch.fill_(epoch)`. stoker's loader compares the dataset's attributes at
`iter()` and sends what has changed.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.sources.script import EpochChange, TrainingScript, read


def examine(target: TargetFacts) -> Iterator[Finding]:
    """From the text of the script."""
    loader = target.loader
    script = read(target.source)
    if not (loader.persistent_workers and loader.num_workers) or loader.engine != "torch" or script is None:
        return
    others = [each.name for each in script.loaders if not each.persistent]
    changes = script.changes_of(_names(script), but=others)
    edit = Edit("persistent_workers=False", "persistent_workers=True", loader.site, "argument")
    if changes:
        first = changes[0]
        yield CHECK.finding(
            f"line {first.line} changes the dataset between epochs ({first.text}){_more(changes)}, and persistent workers keep "
            "the copy they were started with: none of it reaches them",
            "Set persistent_workers=False, or keep the value in a tensor with share_memory_().",
            where=first.text.partition("=")[0].strip(),
            edit=edit,
            numbers={"line": first.line, "changes": len(changes)},
        )
    elif target.dataset_class.rpartition(".")[2] in script.defines_set_epoch:
        yield CHECK.finding(
            f"{target.dataset_class} has a set_epoch, and persistent workers keep the copy they were started with: "
            "a call of it in the training process reaches them through shared memory, and in no other way",
            "If anybody calls it, set persistent_workers=False, or keep the epoch in a tensor with share_memory_().",
            severity="low",
            where="dataset.set_epoch",
            edit=edit,
        )


def _names(script: TrainingScript) -> set[str]:
    """What datasets of such loaders are called: the argument of the call."""
    return {each.dataset for each in script.loaders if each.persistent}


def _more(changes: tuple[EpochChange, ...]) -> str:
    return f", and {len(changes) - 1} more" if len(changes) > 1 else ""


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="Attributes of the dataset are compared at iter(), and what changed is sent to the workers.",
    examine=examine,
    rows=(13,),
)
