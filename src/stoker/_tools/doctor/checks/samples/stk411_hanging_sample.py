"""A sample takes for ever.

What it finds
-------------
A probe made samples in a child process and did not come back within its time: 10 seconds and more, where making samples is
budgeted with 1.5. The index it was on and its Python stack are told, and the other samples were examined without it. Where the
process has other Python threads, which a forked worker does not have, the sample is made beside them too: if it comes back then,
the finding says so, and there is none for a loader that forks no workers.

Why it hurts
------------
torch's loader waits without a word, or, with `timeout`, raises `DataLoader timed out after N seconds`, without the index and
without the stack. All other workers run dry behind it, and every other rank waits at its next collective.

Example
-------
```python
def __getitem__(self, index):
    return self.session.get(self.urls[index]).content        # no timeout: a server that does not answer holds it for ever
```

Fix
---
Look at the line that is told. Network and lock calls need a timeout (`requests.get(url, timeout=10)`), decoders of damaged
files a limit. stoker's loader warns of such a sample by itself, with index and stack, and with `timeout=60` raises an error that
has both.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding, counted
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.probe_failures import ProbeFailures
from stoker._tools.doctor.facts.samples import ProbeFailure, innermost

_MOST_NAMED = 3


def examine(probe_failures: ProbeFailures) -> Iterator[Finding]:
    """Each index once; a probe that hung on no sample has at most a word."""
    told = set()
    for probe, failure in probe_failures.all:
        if failure.what != "hung" or failure.index in told:
            continue
        told.add(failure.index)
        known = failure.index is not None
        place = f"dataset[{failure.index}]" if known else f"the probe {probe!r}"
        stack = f"; it stands in {innermost(failure.stack)}" if failure.stack else ""
        yield CHECK.finding(
            f"{place} did not come back{_lacking(failure)}: {failure.text}{stack}",
            _advice(failure),
            severity="high" if known or failure.stack else "low",
            where=place if known else None,
            numbers={"index": failure.index, "probe": probe},
        )


def _lacking(failure: ProbeFailure) -> str:
    if not failure.lacking:
        return ""
    names = ", ".join(failure.lacking[:_MOST_NAMED]) + (", …" if len(failure.lacking) > _MOST_NAMED else "")
    return f" in a forked process, which does not have the {counted(len(failure.lacking), 'other thread')} of this one ({names})"


def _advice(failure: ProbeFailure) -> str:
    if failure.lacking:
        return "Start what it waits for at the first __getitem__ of every worker, or in worker_init_fn."
    if failure.index is None:
        return "Look at the line where it stands: what does it wait for?"
    return "Give what it waits for a timeout, or leave this sample out."


CHECK = Check(__name__, __doc__, severity="high", examine=examine, rows=(33,))
