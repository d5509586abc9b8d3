"""An exception of the dataset cannot leave a worker.

What it finds
-------------
A sample raised an exception whose class cannot be pickled: it is defined inside a function, or was made at run time.

Why it hurts
------------
torch sends the class of an exception to the trainer, from a background thread of the worker. When that fails, the error
is printed at best, the batch never comes, and the training loop waits forever: a bad sample becomes a hang.

Example
-------
```python
def build(paths):
    class Broken(Exception): ...
    class Pictures(Dataset):
        def __getitem__(self, index):
            raise Broken(paths[index])
    return Pictures()
```

Fix
---
Define exception classes at the top of a module, with an `__init__` that takes its arguments as they are in `args`.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.samples import SampleFacts
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.wording import FEEDING, LOADER


def examine(samples: SampleFacts, target: TargetFacts) -> Iterator[Finding]:
    """Each such class once."""
    if target.loader.engine == "stoker" or not target.loader.num_workers:
        return
    for kind in dict.fromkeys(each.kind for each in samples.failures if not each.picklable):
        first = next(each for each in samples.failures if each.kind == kind and not each.picklable)
        place = "collate_fn" if first.collating else f"dataset[{first.index}]"
        yield CHECK.finding(
            f"{place} raised {kind} ({first.text or 'no text'}), and its class cannot be pickled: with workers torch's loader "
            "would wait for ever instead of raising it",
            f"Define {kind} at the top of a module.",
            where=place,
            numbers={"index": first.index, "kind": kind},
        )


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="The text and the worker's traceback always arrive; the type does where it can travel, by value if need be.",
    examine=examine,
    marks=(
        Mark(
            r"TypeError: (?:[\w.<>]+\.)?__init__\(\) (?:missing \d+ required|got an unexpected keyword argument|"
            r"takes)",
            also=(r"in reraise\b|_ForkingPickler\.loads|self\.exc_type\(", LOADER),
            weight=26,
        ),
        Mark(
            r"Can't (?:pickle|get) (?:local object|<class) [^\n]{0,120}(?:Error|Exception|Failure|Bad)\w*'",
            also=(FEEDING,),
            weight=27,
        ),
    ),
    rows=(4,),
)
