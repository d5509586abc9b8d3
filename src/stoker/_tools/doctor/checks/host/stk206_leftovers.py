"""Processes that ended left files in shared memory.

What it finds
-------------
Files in `/dev/shm` with names that torch, multiprocessing, loky and OpenMP give (`torch_*`, `sem.mp-*`, `psm_*`, `sem.loky-*`,
`__KMP_REGISTERED_LIB_*`), of this user, that no live process maps or has open and whose maker is gone.

Why it hurts
------------
They are memory: nothing frees it until they are deleted or the machine restarts, it counts against the container's limit, and
it is room that the next run's batches do not have in `/dev/shm`. They come from runs that were killed (`kill -9`, the OOM
killer, a job that ran out of time). Semaphores (`sem.mp-*`) are 32 bytes each: worth a note, not an alarm.

Example
-------
```console
$ ls -l /dev/shm
-rw------- 1 me me 154140736 May  2 03:12 torch_20211_1872332215_17      # process 20211 has been dead for a day
```

Fix
---
Delete them by name, when no job of yours runs: `rm /dev/shm/torch_20211_*`. When `/dev/shm` is shared with other containers
(`--ipc=host`, one `emptyDir` for several), their processes cannot be seen from here: look there first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from shlex import quote

from stoker._record.finding import Edit, Finding, counted, size
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.host.leftovers import Leftovers
from stoker._tools.doctor.facts.host.machine import MachineFacts

_HARMLESS_BYTES = 1 << 20
_SHARE = 0.1
"""Of /dev/shm: from here on it is worth more than a note."""
_LITTLE_ROOM = 0.25
"""Of /dev/shm: with less than this free, the next run misses what is left over."""
_MOST_NAMED = 4
"""Files, or groups of one dead process's files, in the command."""
_OF_A_PROCESS = re.compile(r"(?P<process>(?:torch_|(?:sem\.)?loky-|__KMP_REGISTERED_LIB_)\d+[_-])[\w-]*")


def examine(machine: MachineFacts) -> Iterator[Finding]:
    """What is left over, and the command that deletes exactly that."""
    found = machine.leftovers
    if found is None or not found.count:
        return
    advice = "Delete exactly these files."
    named = _patterns(found)[:_MOST_NAMED]
    if found.count > len(found.names) or len(_patterns(found)) > _MOST_NAMED:
        advice = f"Delete the largest first, as here ({len(named)} of them), and look again."
    if machine.shm_shared:
        advice += " Make sure that no other container uses them: this one may share /dev/shm, and cannot see their processes."
    yield CHECK.finding(
        here(machine),
        advice,
        severity=_severity(found, machine),
        edit=Edit(_command(found), kind="shown"),
        where="/dev/shm",
        numbers={"count": found.count, "bytes": found.total_bytes, "oldest_s": round(found.oldest_s)},
    )


def _severity(found: Leftovers, machine: MachineFacts) -> str:
    if found.total_bytes < _HARMLESS_BYTES:
        return "none"
    if not machine.shm_bytes or found.total_bytes <= _SHARE * machine.shm_bytes:
        return "none"
    free = machine.shm_free_bytes
    return "moderate" if free is not None and free < _LITTLE_ROOM * machine.shm_bytes else "low"


def _command(found: Leftovers) -> str:
    return "cd /dev/shm && rm " + " ".join(_patterns(found)[:_MOST_NAMED])


def _patterns(found: Leftovers) -> list[str]:
    """As a shell takes them, the largest first. Files of one process that is gone are one pattern; others stand by name, because
    a pattern could meet files of processes that live."""
    matches = {name: _OF_A_PROCESS.fullmatch(name) for name in found.names}
    shown = (f"{match['process']}*" if match else quote(name) for name, match in matches.items())
    return list(dict.fromkeys(shown))


def here(machine: MachineFacts) -> str:
    """How much is left over, and since when."""
    found = machine.leftovers
    if found is None or not found.count:
        return ""
    kinds = ", ".join(f"{kind}*" for kind in found.kinds)
    return (
        f"{counted(found.count, 'file')} ({kinds}) in /dev/shm hold {size(found.total_bytes)} for processes that are gone, "
        f"the oldest for {_age(found.oldest_s)}"
    )


def _age(seconds: float) -> str:
    for unit, length_s in (("day", 86400), ("hour", 3600)):
        if seconds >= length_s:
            return counted(round(seconds / length_s), unit)
    return counted(max(1, round(seconds / 60)), "minute")


CHECK = Check(
    __name__,
    __doc__,
    severity="moderate",
    prevented="Its memory has no name in /dev/shm: the kernel frees it with the last process that has it.",
    examine=examine,
    marks=(
        Mark(
            r"resource_tracker: There appear to be \d+ leaked (?:semaphore|shared_memory|folder|"
            r"file) objects? to clean up",
            weight=2,
        ),
        Mark(r"semaphore_tracker: There appear to be \d+ leaked semaphores? to clean up", weight=2),
        Mark(r"\bFile exists: ['\"]/(?:psm_\w+|torch_\w+|\d{5,7}_\w+)['\"]", weight=18),
        Mark(
            r"unable to open shared memory object </torch_\w+> in read[-/]write mode: File exists", weight=28
        ),
    ),
    here=here,
)
