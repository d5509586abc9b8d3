"""The target cannot be loaded.

What it finds
-------------
`stoker doctor TARGET` could not load its target: there is no such file, module or name, the code raised, hung or ended while it was
imported or called, or the object is neither a dataset nor a loader.

Why it hurts
------------
stoker cannot examine the data. The text says which of these it is, with the lines of the user's own files, and what the code
printed before.

Example
-------
```sh
stoker doctor train.py              # names no object
stoker doctor train.py:main         # returns None: main() trains, and gives no loader
```

Fix
---
Name a dataset, a loader, or a function without arguments that returns one: `stoker doctor train.py:make_loader`. The
doctor imports the module, and so runs its module-level code: keep training behind `if __name__ == "__main__":`.
Settings that the code needs (environment variables, the current folder) are those of the shell.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__, __doc__, severity="low", marks=(Mark(r"stoker\.errors\.TargetError|^TargetError:", weight=30),)
)
