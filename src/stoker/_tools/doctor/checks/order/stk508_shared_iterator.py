"""One loader is iterated twice at the same time.

What it finds
-------------
A script that iterates over the same loader twice at once: `zip(loader, loader)`, or a loop over a loader within a loop over
it, where the loader has persistent workers.

Why it hurts
------------
With `persistent_workers=True` torch has one iterator per loader and hands out that one at every `iter()`. `zip(loader,
loader)` pairs batch 0 with batch 1, 2 with 3, and ends after half an epoch; an inner loop starts the outer one over. Nothing
raises.

Example
-------
```python
loader = DataLoader(dataset, num_workers=4, persistent_workers=True)
for a, b in zip(loader, loader): ...      # (0, 1), (2, 3), ...
```

Fix
---
Make a second loader over the same dataset, or set `persistent_workers=False`. Iterators of stoker's loader are independent.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.sources.script import read


def examine(target: TargetFacts) -> Iterator[Finding]:
    """From the text of the script, for names that loaders with persistent workers are assigned to."""
    loader = target.loader
    script = read(target.source)
    if script is None or loader.engine != "torch" or not (loader.persistent_workers and loader.num_workers):
        return
    names = {each.name for each in script.loaders if each.persistent} | {target.name.rpartition(":")[2]}
    for name, line, how in script.shared:
        if name in names:
            yield CHECK.finding(
                f"line {line} iterates over {name} twice at the same time ({how}), and persistent workers have one iterator: "
                + (
                    "it pairs batch 0 with batch 1"
                    if how == "zip"
                    else "the inner loop starts the outer one over"
                ),
                "Make a second loader over the same dataset, or set persistent_workers=False.",
                where=name,
                edit=Edit("persistent_workers=False", "persistent_workers=True", loader.site, "argument"),
                numbers={"line": line},
            )


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="Every iter() gives an iterator of its own.",
    examine=examine,
    rows=(17,),
)
