"""The training script as a module. Other processes cannot import it, so what is defined there travels by value.

multiprocessing calls it ``__mp_main__`` in the processes it spawns (``torch.multiprocessing.spawn``, say), where cloudpickle takes
it for a module like any other.
"""

from __future__ import annotations

import sys

import cloudpickle

NAMES = ("__main__", "__mp_main__")


def register_by_value() -> None:
    """See to it that cloudpickle treats the script alike under both names. Idempotent."""
    module = sys.modules.get("__mp_main__")
    if module is not None and module.__name__ == "__mp_main__":
        cloudpickle.register_pickle_by_value(module)
