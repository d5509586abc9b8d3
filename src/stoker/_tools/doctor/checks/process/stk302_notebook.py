"""The dataset's class exists only in this notebook or console.

What it finds
-------------
The dataset's class is defined where there is no file (a notebook, a console, standard input), and workers are started by spawn
or forkserver.

Why it hurts
------------
Such a worker is a new interpreter: it is sent the dataset, not its class, and looks for the class in a module of the same name.
In the worker appears `AttributeError: Can't get attribute 'Pictures' on <module '__main__' (built-in)>`, or from standard input
`FileNotFoundError: … '<stdin>'`; in the notebook `DataLoader worker (pid(s) …) exited unexpectedly`. Under fork it works;
macOS, Windows and Python 3.14 do not fork by default.

Example
-------
```python
# In a cell
class Pictures(Dataset): ...
loader = DataLoader(Pictures(), num_workers=2, multiprocessing_context="spawn")
```

Fix
---
Write the class into a file (`%%writefile pictures.py` at the top of the cell, then `from pictures import Pictures`), or use
fork where nothing forbids it.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker._record.finding import Edit, Finding
from stoker._tools.doctor.check import Check, Mark
from stoker._tools.doctor.facts.process import ProcessFacts
from stoker._tools.doctor.facts.target import TargetFacts
from stoker._tools.doctor.wording import LOADER, OTHERS, POOLS

_MAIN = "__main__."


def examine(process: ProcessFacts, target: TargetFacts) -> Iterator[Finding]:
    """Only where a worker would have to look the class up."""
    loader = target.loader
    if not process.interactive or not target.dataset_class.startswith(_MAIN):
        return
    if loader.engine == "stoker" or loader.start_method == "fork" or not loader.num_workers:
        return
    name = target.dataset_class.removeprefix(_MAIN)
    module = name.partition(".")[0].lower()
    yield CHECK.finding(
        f"{name} is defined in a notebook or console, where a worker started by {loader.start_method} cannot find it",
        f"Write it into a file (in a cell: %%writefile {module}.py) and import it, or pass multiprocessing_context='fork'.",
        edit=Edit('multiprocessing_context="fork"', site=loader.site, kind="shown"),
        where=target.dataset_class,
        numbers={"start_method": loader.start_method, "num_workers": loader.num_workers},
    )


CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    prevented="Classes and functions that no worker can import travel by value.",
    examine=examine,
    marks=(
        Mark(
            r"Can't get attribute '[\w.]+' on <module '__main__' \((?:built-in|"
            r"<class '_frozen_importlib\.BuiltinImporter'>|<_frozen_importlib[^\n]{0,80})\)>",
            never=(POOLS, r"<traceback object at"),  # a program's own report of an error, of whatever kind
            weight=26,
        ),
        Mark(
            r"Can't get attribute '[\w.]+' on <module '__main__'",
            also=(r"spawn_main|forkserver|ipykernel|<stdin>|reduction\.pickle\.load",),
            never=(POOLS,),
            weight=24,
        ),
        Mark(r"(?:No such file or directory|Errno 2[0-9]?\][^\n]{0,60}): '[^'\n]*<stdin>'", weight=24),
        Mark(
            r"Can't get attribute '[\w.]+' on <module '__mp_main__'",
            also=(LOADER,),
            never=(POOLS,),
            weight=22,
        ),
        Mark(
            r"Can't get attribute '[\w.]+' on <module '__mp_main__'(?! from '[^'\n]*(?<!\.py)')",  # a server is no script
            never=(OTHERS, POOLS),
            weight=16,
        ),
    ),
    rows=(21,),
)
