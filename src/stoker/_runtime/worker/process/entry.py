"""Starts a worker process: the first module of stoker that a spawned process imports.

The garbage collector is off during the imports. Importing torch makes hundreds of thousands of objects and no garbage; looking
for garbage would take a tenth of the time.
"""

from __future__ import annotations

import gc

from stoker._runtime.worker.process.orphan import ends_with_parent

_collecting = gc.isenabled()
gc.disable()

with ends_with_parent("multiprocessing.spawn", "spawn_main"):
    from stoker._runtime.worker.process import main

if _collecting:
    gc.enable()


def run(boot: main.WorkerBoot) -> None:
    """Entry point of the process."""
    main.run(boot)
