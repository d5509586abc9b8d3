"""Makes cloudpickle send the training script's code by value, because other processes cannot import it.

multiprocessing calls the script ``__mp_main__`` in processes that it spawns (``torch.multiprocessing.spawn``, for example). There
cloudpickle would take it for an importable module.
"""

from __future__ import annotations

import sys

import cloudpickle

NAMES = ("__main__", "__mp_main__")


def register_by_value() -> None:
    """Make cloudpickle treat the script equally under both names. Idempotent."""
    module = sys.modules.get("__mp_main__")
    if module is not None and module.__name__ == "__mp_main__":
        cloudpickle.register_pickle_by_value(module)
