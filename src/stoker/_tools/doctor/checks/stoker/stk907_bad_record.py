"""A run record cannot be read.

What it finds
-------------
The file or dict is not a run record, is damaged, or was written by a newer stoker.

Why it hurts
------------
stoker cannot judge the run.

Example
-------
```sh
stoker report train.log      # a log is no record
```

Fix
---
Give the file that `stoker profile` named at its end (`*.stoker.json`). A newer format needs the stoker that wrote it: `pip
install -U stoker`. A file that was cut short is read up to where it is whole.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__,
    __doc__,
    severity="low",
    marks=(
        Mark(
            r"stoker\.errors\.RecordError|^RecordError:|is no run record|this run record is damaged|"
            r"this is no run page of stoker",
            weight=30,
        ),
    ),
)
