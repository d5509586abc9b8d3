"""Two libraries are not compatible.

What it finds
-------------
Two OpenMP runtimes in one process, an MKL that was told to use another one, extension modules built for another numpy, an
HDF5 other than the one h5py was built with, or tokenizers that were used before a fork.

Why it hurts
------------
Such a process aborts, computes slowly, or hangs. It often begins with workers: they load libraries in another order than
the main process does.

Example
-------
```text
OMP: Error #15: Initializing libiomp5md.dll, but found libiomp5md.dll already initialized.
```

Fix
---
Install torch, numpy and what is built on them from one place (all from pip, or all from one conda channel), into a fresh
environment.

`KMP_DUPLICATE_LIB_OK=TRUE` hides the first and may give wrong numbers. For MKL set `MKL_THREADING_LAYER=GNU`; for
tokenizers set `TOKENIZERS_PARALLELISM=false` before the loader is made, or tokenize in `__getitem__` only.
"""

from __future__ import annotations

from stoker._tools.doctor.check import Check, Mark

CHECK = Check(
    __name__,
    __doc__,
    severity="high",
    marks=(
        Mark(r"OMP: Error #15: Initializing", weight=24),
        Mark(r"MKL_THREADING_LAYER=INTEL is incompatible with libgomp", weight=24),
        Mark(
            r"numpy\.dtype size changed, may indicate binary incompatibility|numpy\.ufunc size changed",
            weight=20,
        ),
        Mark(
            r"A module that was compiled using NumPy 1\.x cannot be run in NumPy 2|compiled against (?:ABI|"
            r"API) version 0x\w+ but this version of numpy is",
            weight=20,
        ),
        Mark(r"HDF5 library version mismatched error", weight=20),
        Mark(
            r"huggingface/tokenizers: The current process just got forked",
            weight=3,
        ),
    ),
)
