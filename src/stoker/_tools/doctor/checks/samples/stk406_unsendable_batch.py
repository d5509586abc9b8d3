"""A batch holds something that cannot be sent to the trainer.

What it finds
-------------
A batch, as the loader's `collate_fn` made it, that pickle refuses: a generator, an open file, a lock, a lambda, or a tensor that is
the result of a computation with gradients. It is named by its path in the batch.

Why it hurts
------------
torch pickles results in a background thread of the worker. A failure there is printed to stderr and lost: the batch
never arrives, and the training loop waits for it forever.

Example
-------
```python
def collate(rows):
    return {"x": torch.stack(rows), "names": (row.name for row in rows)}     # a generator
```

Fix
---
Make plain data of it in the `collate_fn`: `list(...)` instead of a generator, `tensor.detach()`, a path instead of an open file.
stoker's loader detaches such tensors, and for the rest raises an error that names the key and the type: it does not hang.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.samples import SampleFacts
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.wording import FEEDING, FRAME, LOADER, STARTING


def examine(samples: SampleFacts, target: TargetFacts) -> Iterator[Finding]:
    """What the pickler refused, unless stoker's loader makes it right."""
    loader = target.loader
    stokers = loader.engine == "stoker"
    for text in samples.unsendable:
        grad = "requires_grad" in text
        if stokers and grad:
            continue
        severity = "low" if not loader.num_workers else "moderate" if stokers else "high"
        ends = (
            "stoker's loader raises an error"
            if stokers
            else "torch's loader would wait for this batch forever"
        )
        yield CHECK.finding(
            f"{text}; with workers {ends}" if loader.num_workers else f"{text}; it would with workers",
            "Return tensor.detach()."
            if grad
            else "Make plain data of it in the collate_fn: list(...) of a generator, text, numbers.",
            severity=severity,
            where=text.partition(" (")[0],
            numbers={"workers": loader.num_workers},
        )


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="Batches are pickled where an error can be raised: it names the key and the type. Gradients are detached.",
    examine=examine,
    marks=(
        Mark(
            r"(?:[Cc]annot|[Cc]an't|can not) (?:pickle|serialize) '?[\w.]+'? objects?\b",
            also=(FEEDING,),
            weight=24,
        ),
        Mark(r"Can't pickle ", also=(FEEDING,), weight=23),
        Mark(
            r"refusing to serialize non-leaf tensor which requires_grad",
            also=(rf"{FEEDING}|{LOADER}",),
            never=(STARTING,),
            weight=24,
        ),
        Mark(
            r"refusing to serialize non-leaf tensor which requires_grad",
            never=(FRAME, r"multiprocessing\.?\s?Queue|mp\.Queue"),
            weight=18,
        ),
        Mark(r"UnsendableError: batch", weight=32),
    ),
    rows=(3,),
)
