"""A sample hangs.

What it finds
-------------
A probe made samples in a child process and did not finish in time: 10 seconds or more, where 1.5 are planned. The
finding has the index and the Python stack. The other samples were examined without it. If the process has other Python
threads, which a forked worker lacks, the sample is also made beside them. If it then finishes, the finding says so. A
loader that forks no workers has no finding then.

Why it hurts
------------
torch's loader waits silently. With `timeout`, it raises `DataLoader timed out after N seconds`, without the index and
without the stack. All other workers run out of work, and every other rank waits at its next collective.

Example
-------
```python
def __getitem__(self, index):
    return self.session.get(self.urls[index]).content        # no timeout: a server that does not answer holds it for ever
```

Fix
---
Look at the line in the finding. Network and lock calls need a timeout (`requests.get(url, timeout=10)`), decoders of
damaged files a limit. stoker's loader warns about such a sample, with index and stack. With `timeout=60` it raises an
error that has both.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from stoker._record.finding import Finding, counted
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.probe_failures import ProbeFailures
from stoker._tools.doctor.facts.samples import ProbeFailure, innermost

_MOST_NAMED = 3
_TORCHS = os.path.join("torch", "utils", "data", "sampler.py")


def examine(probe_failures: ProbeFailures) -> Iterator[Finding]:
    """Each index once; a probe that hung on no sample has at most a word."""
    told = set()
    for probe, failure in probe_failures.all:
        if failure.what != "hung" or failure.index in told or _lists_the_order(failure):
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


def _lists_the_order(failure: ProbeFailure) -> bool:
    """Whether it was torch's sampler that took so long: STK605 has that."""
    return (
        failure.index is None
        and innermost(failure.stack).startswith("__iter__ (sampler.py:")
        and _TORCHS in failure.stack
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
        return "Look at the line where it hangs, and find out what it waits for."
    return "Give what it waits for a timeout, or leave this sample out."


CHECK = Check(__name__, __doc__, severity="high", examine=examine, rows=(33,))
