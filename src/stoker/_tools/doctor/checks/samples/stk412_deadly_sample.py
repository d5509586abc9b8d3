"""A sample kills the process that makes it.

What it finds
-------------
A probe made samples in a child process, and one sample ended the process: by a signal (SIGSEGV, SIGBUS, SIGABRT), or by
an exit from native code, `os._exit` or `sys.exit`. Or the sample needed more memory than the doctor allows (half of
what is free), and the doctor stopped it before the kernel would.

Why it hurts
------------
Without workers the whole training ends, without a traceback. With them torch raises `DataLoader worker (pid 4711) is killed by
signal: Segmentation fault`, which names neither the sample nor the call, and the epoch is lost.

Example
-------
```python
def __getitem__(self, index):
    return decoder.decode(self.blobs[index])        # native code, and blob 41,207 is damaged
```

Fix
---
Reproduce it alone: `python -X faulthandler -c "from data import dataset; dataset[41207]"`. Leave the record out, or update the
library that crashes on it. stoker's loader restarts the worker, finds the sample that kills, names it, and with
`on_bad_sample="skip"` goes on without it.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Finding
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.probe_failures import ProbeFailure, ProbeFailures
from stoker._tools.doctor.facts.samples import innermost


def examine(probe_failures: ProbeFailures) -> Iterator[Finding]:
    """Each index once."""
    told = set()
    for probe, probe_failure in probe_failures.all:
        if (
            probe_failure.what not in ("died", "ate memory")
            or (probe_failure.what, probe_failure.index) in told
        ):
            continue
        told.add((probe_failure.what, probe_failure.index))
        place = f"dataset[{probe_failure.index}]" if probe_failure.index is not None else None
        stack = f" in {innermost(probe_failure.stack)}" if probe_failure.stack else ""
        yield CHECK.finding(
            _evidence(probe, place, probe_failure) + stack,
            "Make what it loads smaller, or load it piece by piece."
            if probe_failure.what == "ate memory"
            else "Leave this sample out, or fix the library that crashes on it."
            if place
            else "Run the dataset with python -X faulthandler to see where it ends.",
            where=place,
            numbers={"index": probe_failure.index, "probe": probe, "end": probe_failure.text},
        )


def _evidence(probe: str, place: str | None, probe_failure: ProbeFailure) -> str:
    what = place or f"the probe {probe!r}"
    if probe_failure.what == "ate memory":
        return f"{what} took {probe_failure.text}, and was stopped"
    return (
        f"{what} {probe_failure.text}"
        if probe_failure.text.startswith("ended")
        else f"{what} was {probe_failure.text}"
    )


CHECK = Check(__name__, __doc__, severity="high", examine=examine, rows=(8,))
