"""The script starts workers as soon as it is imported.

What it finds
-------------
Statements at module level that iterate over a loader with workers, themselves or through a function of the same file, and are
not under `if __name__ == "__main__":`.

Why it hurts
------------
Under spawn and forkserver every worker imports the script that was started. Without the guard each would start workers of its
own. Python stops that with `An attempt has been made to start a new process before the current process has finished its
bootstrapping phase`, and the parent sees `DataLoader worker (pid(s) …) exited unexpectedly`. Under fork it works, until the
script meets macOS, Windows or Python 3.14, where fork is not the default.

Example
-------
```python
loader = DataLoader(ds, num_workers=2, multiprocessing_context="spawn")
for batch in loader:
    step(batch)
```

Fix
---
```python
def main():
    loader = DataLoader(ds, num_workers=2, multiprocessing_context="spawn")
    for batch in loader:
        step(batch)

if __name__ == "__main__":
    main()
```

The dataset, `collate_fn` and `worker_init_fn` stay outside: workers have to find them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from stoker._record.finding import Edit, Finding
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.sources.unguarded import uses
from stoker._tools.doctor.wording import (
    ABOUT_LOADERS,
    ERROR_LINE,
    FOREIGN,
    FRAME,
    LOADER,
    NETWORK,
    NO_WORKERS,
    OTHERS,
    POOLS,
    QUOTED_LOADER,
    RANKS,
    STARTING,
    TRAINERS,
    WITH_WORKERS,
)

_GUARD = 'if __name__ == "__main__":'


def examine(target: TargetFacts) -> Iterator[Finding]:
    """The first such statement of the script; the others share its cure."""
    loader = target.loader
    if loader.engine == "stoker" or not target.source:
        return
    found = uses(target.source)
    if not found or not (loader.num_workers or target.assumed):
        return
    file = PurePath(target.file or loader.file or "the script").name
    first = found[0]
    site = f"{file}:{first.line}"
    forked = loader.start_method == "fork"
    others = f", and so do lines {', '.join(str(each.line) for each in found[1:5])}" if len(found) > 1 else ""
    yield CHECK.finding(
        f"{site} runs {first.text} whenever the file is imported{others}. "
        + (
            "Forked workers do not import it; under spawn and forkserver they do"
            if forked
            else f"Under {loader.start_method} every worker imports it"
        ),
        f"Put what starts the training under {_GUARD}",
        severity="low" if forked else "high",
        edit=Edit(_GUARD, site=site, kind="guard"),
        where=site,
        numbers={"line": first.line, "statements": len(found), "start_method": loader.start_method},
    )


_IDIOM = r"not using fork to start your child processes and you have forgotten to use the proper idiom in the main module"
_EMPTY = r"EOFError: Ran out of input"
_BROKEN = r"BrokenPipeError: \[(?:Errno 32|WinError (?:109|232))\]|^BrokenPipeError {2,40}Traceback"
_OWN_POOL = r"ProcessPoolExecutor|in Pool\b|\bPool\(|\bManager\(\)"
"""The line that starts processes makes a pool of its own."""
_SPAWNED = r"spawn_main|in spawn\b|reduction\.pickle\.load"
_OTHER_CAUSE = (
    r"torch[\\/]serialization\.py",
    r"[Cc]an(?:'t|not) pickle",
    r"Can't get (?:local|attribute)",
    r"KeyError: '__getstate__'",
    r"refusing to serialize non-leaf tensor",
)
"""Of two processes that speak in turn, one tells the cause: then this is what became of it."""

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="Workers do not import the script: what it defines travels by value.",
    examine=examine,
    marks=(
        Mark(
            r"An attempt has been made to start a new process before the current process has finished its "
            r"bootstrapping phase",
            also=(LOADER,),
            weight=30,
        ),
        Mark(
            r"An attempt has been made to start a new process before the current process has finished its "
            r"bootstrapping phase",
            also=(r"num_workers",),
            never=(_OWN_POOL,),
            weight=30,
        ),
        Mark(
            r"An attempt has been made to start a new process before the current process has finished its "
            r"bootstrapping phase",
            never=(POOLS, _OWN_POOL),
            weight=25,
        ),
        Mark(r"in _check_not_importing_main\b", also=(LOADER,), weight=20),  # the message was cut off
        Mark(  # a child imports the script: what it said was cut off
            r"runpy\.run_path\(main_path|_fixup_main_from_(?:path|name)\(",
            never=(ERROR_LINE, POOLS, _OWN_POOL),
            weight=8,
        ),
        Mark(r"\b_check_not_importing_main\b", never=(OTHERS, POOLS, _OWN_POOL), weight=13),
        Mark(  # told in words
            r"\[Errno 32\] Broken pipe",
            also=(
                WITH_WORKERS + r"|(?i:\bnum_workers\b[^\n]{0,40}(?:greater|larger|more|>))|" + NO_WORKERS,
                r"(?ai)\bwin(?:dows|10|11)?\b",
            ),
            never=(FRAME, FOREIGN, NETWORK),
            weight=8,
        ),
        Mark(  # without its number
            r"(?i)\bbroken ?pipe\b",
            also=(
                r"\b[A-Za-z]:[\\/]\w|(?i:\bwin(?:dows|10|11)\b)",
                rf"{NO_WORKERS}|(?i:\btrain(?:ing|er|\.py)?\b)",
            ),
            never=(*_OTHER_CAUSE, ERROR_LINE, FOREIGN, NETWORK, POOLS, RANKS, r"subprocess|ffmpeg|\bstdin\b"),
            weight=6,
        ),
        Mark(  # the head of a notebook's traceback, whose end was cut off
            r"^BrokenPipeError {2,}Traceback",
            also=(rf"{ABOUT_LOADERS}|{QUOTED_LOADER}",),
            never=(*_OTHER_CAUSE, FOREIGN, NETWORK, POOLS, RANKS),
            weight=8,
        ),
        Mark(r"^ *freeze_support\(\)", also=(LOADER,), weight=14),
        Mark(r"^RuntimeError: freeze_support\(\)", never=(POOLS, _OWN_POOL), weight=13),
        Mark(  # the second half of the same message
            _IDIOM,
            also=(LOADER,),
            never=(POOLS, _OWN_POOL),
            weight=14,
        ),
        Mark(_IDIOM, never=(POOLS, _OWN_POOL, OTHERS), weight=14),
        Mark(
            _EMPTY,
            also=(_SPAWNED, rf"{LOADER}|{TRAINERS}|DataLoader"),
            never=_OTHER_CAUSE,
            weight=15,
        ),
        Mark(  # the child's frames were cut off
            _EMPTY,
            also=(
                rf"{STARTING}|dataloader\.py\", line \d+, in __init__\n *w\b",
                LOADER,
                r"File \"[A-Za-z]:[\\/]",
            ),
            never=(*_OTHER_CAUSE, r"\[WinError \d"),
            weight=13,
        ),
        Mark(  # its words were cut off too
            r"\bEOFError\b",
            also=(r"popen_spawn_win32|spawn_main", LOADER),
            never=(*_OTHER_CAUSE, r"^(?!EOFError)(?:\w+\.)*\w*(?:Error|Exception)\b", POOLS, RANKS),
            weight=9,
        ),
        Mark(  # told in words
            _EMPTY,
            also=(r"(?i)\bwin(?:dows|10|11)\b", r"(?i)\btrain"),
            never=(*_OTHER_CAUSE, FRAME, POOLS, r"torch\.load\("),
            weight=8,
        ),
        Mark(  # the child's first line beside the parent's, on Windows
            r"^ *File \"<string>\", line 1, in <module>",
            also=(LOADER, r"_MultiProcessingDataLoaderIter\(self\)|w\.start\(\)", r"File \"[A-Za-z]:[\\/]"),
            never=(*_OTHER_CAUSE, ERROR_LINE, POOLS, RANKS),
            weight=7,
        ),
        Mark(_EMPTY, also=(_SPAWNED,), never=(*_OTHER_CAUSE, OTHERS, POOLS), weight=12),
        Mark(
            _BROKEN,
            also=(rf"{STARTING}|spawn_main", rf"{LOADER}|{TRAINERS}"),
            never=(*_OTHER_CAUSE, RANKS),
            weight=15,
        ),
        Mark(
            _BROKEN,
            also=(r"popen_spawn_|ForkingPickler\(file, protocol\)\.dump|spawn_main|__mp_main__",),
            never=(*_OTHER_CAUSE, OTHERS, POOLS),
            weight=12,
        ),
    ),
    rows=(21,),
)
