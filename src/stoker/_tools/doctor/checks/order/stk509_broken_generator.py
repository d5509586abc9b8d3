"""A stream ends at its first bad record.

What it finds
-------------
While the stream was read, an item raised, and the iterator had ended when it was asked for the next one.

Why it hurts
------------
A generator that has raised is finished: `next()` gives `StopIteration` from then on. A training loop that catches the
error and continues gets no further item from that worker, and the epoch ends early without another error. How much is
lost depends on where the bad record lies.

Example
-------
```python
def __iter__(self):
    for line in open(self.path):
        yield json.loads(line)            # one bad line, and the rest of the file is gone
```

Fix
---
Catch the error where the record is read, inside the generator:

```python
def __iter__(self):
    for line in open(self.path):
        try:
            yield json.loads(line)
        except ValueError:
            self.skipped += 1
```

Or write an iterator class whose `__next__` may raise and be called again: `on_bad_sample="skip"` of stoker's loader
then skips bad records. It cannot skip them in a generator, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.stream import StreamFacts
from stoker._tools.doctor.facts.target import TargetFacts

_AFTER = {
    "ended": "the iterator had ended: everything behind that item is lost to a loop that catches the error",
    "raised": "the next one raised as well",
}


def examine(stream: StreamFacts, target: TargetFacts) -> Iterator[Finding]:
    """Only where an item raised; one that goes on afterwards is sound."""
    broken = stream.broken
    if broken is None or broken.after not in _AFTER:
        return
    length = f" of {stream.declared}" if stream.declared else ""
    yield CHECK.finding(
        f"item {broken.item}{length} raised {broken.kind}: {broken.text}, and then {_AFTER[broken.after]}",
        "Catch the error inside __iter__, around the record, and go on with the next.",
        severity="high" if broken.after == "ended" else "moderate",
        where=f"{target.dataset_class}.__iter__",
        edit=Edit(f"try: ...\nexcept {broken.kind}: continue", site=target.dataset_file, kind="shown"),
        numbers={"item": broken.item, "declared": stream.declared},
    )


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    examine=examine,
    marks=(
        Mark(r"on_bad_sample cannot go past this", weight=28),
        Mark(r"the stream ended right after its sample \d+ raised", weight=4),
    ),
    rows=(18,),
)
