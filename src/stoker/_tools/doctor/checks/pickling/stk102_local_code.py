"""A function or class that no other process can import.

What it finds
-------------
Lambdas, functions and classes defined inside functions, and code that its module does not have under its name. It looks
at the dataset, `collate_fn` and `worker_init_fn`, and names the path, file and line.

Why it hurts
------------
Plain pickle sends code by its name only. `iter(loader)` then fails under spawn and forkserver with
`Can't pickle local object` or `attribute lookup … failed`: on macOS and Windows, on Linux from Python 3.14 on, and with
`multiprocessing_context="spawn"`. Forked workers inherit the code, so there the same script works.

Example
-------
```python
dataset = Pictures(transform=lambda image: image / 255)
loader = DataLoader(dataset, num_workers=4, multiprocessing_context="spawn")    # Can't pickle <function <lambda>>
```

Fix
---
Define it at the top level of a module, and bind what it needs with `functools.partial`:

```python
def scaled(image, by):
    return image / by

dataset = Pictures(transform=partial(scaled, by=255))
```

Or use stoker's loader, which sends such code by value: `from stoker import DataLoader`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from stoker._record.finding import Edit, Finding
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.scan import LocalCode, ScanFacts
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.wording import FEEDING, LOADER, POOLS, QUOTED_LOADER, RANKS, by_a_loader

_SHOWN = 5
_IMPORT = "from stoker import DataLoader"
_ADVICE = "Define it at the top level of a module, with functools.partial for what it needs; stoker's loader sends it as it is."


def examine(scan: ScanFacts, target: TargetFacts) -> Iterator[Finding]:
    """One finding for all of them: they have one cure."""
    loader = target.loader
    if not scan.local_code or not loader.num_workers or loader.engine == "stoker":
        return
    listed = ", ".join(_description(each) for each in scan.local_code[:_SHOWN])
    rest = len(scan.local_code) - _SHOWN
    listed += f" and {rest} more" if rest > 0 else ""
    forked = loader.start_method == "fork"
    yield CHECK.finding(
        f"{listed}: forked workers inherit it, spawned ones could not be sent it (macOS, Windows, Python 3.14 and later)"
        if forked
        else f"{listed} cannot be sent to a worker under {loader.start_method}: plain pickle sends code by its name",
        _ADVICE,
        severity="none" if forked else None,
        edit=None if forked else Edit(_IMPORT, None, loader.site, "import"),
        where=scan.local_code[0].path,
        numbers={
            "count": len(scan.local_code),
            "name": scan.local_code[0].name,
            "start_method": loader.start_method,
        },
    )


def _description(each: LocalCode) -> str:
    file, _, line = each.site.rpartition(":")
    site = f", {PurePath(file).name}:{line}" if file else ""
    name = "" if each.kind == "lambda" else f" {each.name.rpartition('.')[2]}"
    return f"{each.path} ({each.kind}{name}{site})"


_LOCAL = r"[Cc]an't (?:pickle|get) local object|Can't pickle <function <lambda> at 0x"
_ELSEWHERE = rf"(?:{_LOCAL})[^\n]{{0,120}}?(?i:queue|executor|server|client|session)"
"""Its name tells that something else has it."""

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="Functions and classes that cannot be imported travel by value, from notebooks too.",
    examine=examine,
    marks=(
        Mark(_LOCAL, also=(LOADER,), never=(FEEDING,), weight=21),
        Mark(
            rf"{_LOCAL}|Can't pickle <(?:function|class) [^\n]{{1,200}}: attribute lookup [^\n]{{1,200}} failed",
            also=(QUOTED_LOADER,),
            never=(FEEDING, POOLS, r"serialization\.py|copy\.py|torch\.save"),
            weight=12,
        ),
        *by_a_loader(_LOCAL, never=(FEEDING, _ELSEWHERE), weight=21),
        Mark(  # its name tells that a loader has it
            r"Can't (?:pickle|get) local object \W{1,2}[\w.<>]*"
            r"(?i:collat|transform|dataset|data_?loader|sampler|worker_init|augment)",
            never=(FEEDING, POOLS, r"serialization\.py|copy\.py|torch\.save"),
            weight=13,
        ),
        Mark(  # the child finds no module of that name
            r"reduction\.pickle\.load\(from_parent\)\n(?:(?!Traceback)[^\n]*\n){0,24}?(?:\w+\.)*(?:ModuleNotFound|Import)Error: ",
            never=(POOLS, RANKS),
            weight=20,
        ),
        Mark(
            r"Can't pickle <(?:function|class) [^\n]{1,200}<locals>",
            also=(LOADER,),
            never=(FEEDING,),
            weight=21,
        ),
        Mark(
            r"Can't pickle <(?:function|class) [^\n]{1,200}: attribute lookup [^\n]{1,200} failed",
            also=(LOADER,),
            never=(FEEDING,),
            weight=21,
        ),
    ),
    rows=(19,),
)
