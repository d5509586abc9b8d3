"""stoker keeps the accelerator fed: a drop-in PyTorch DataLoader on an engine of its own."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker._doctor.examination import doctor as doctor
    from stoker._doctor.explain import explain as explain
    from stoker._plan.elastic import ElasticDistributedSampler as ElasticDistributedSampler
    from stoker._share.arrays import SharedArray as SharedArray
    from stoker._share.dicts import SharedDict as SharedDict
    from stoker._share.lists import SharedList as SharedList
    from stoker._share.lists import SharedTuple as SharedTuple
    from stoker._share.sets import SharedSet as SharedSet
    from stoker._share.walk import share as share
    from stoker._tune.tuning import tune as tune
    from stoker._worker.keyed import generator as generator
    from stoker.loader import DataLoader as DataLoader

__version__ = "0.1.0"
__all__ = [
    "DataLoader",
    "ElasticDistributedSampler",
    "SharedArray",
    "SharedDict",
    "SharedList",
    "SharedSet",
    "SharedTuple",
    "__version__",
    "doctor",
    "explain",
    "generator",
    "share",
    "tune",
]

_HOMES = {
    "DataLoader": "stoker.loader",
    "ElasticDistributedSampler": "stoker._plan.elastic",
    "SharedArray": "stoker._share.arrays",
    "SharedDict": "stoker._share.dicts",
    "SharedList": "stoker._share.lists",
    "SharedSet": "stoker._share.sets",
    "SharedTuple": "stoker._share.lists",
    "doctor": "stoker._doctor.examination",
    "explain": "stoker._doctor.explain",
    "generator": "stoker._worker.keyed",
    "share": "stoker._share.walk",
    "tune": "stoker._tune.tuning",
}


def __getattr__(name: str) -> Any:
    """Public names are imported when first used: importing stoker alone costs nothing and starts nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'stoker' has no attribute {name!r}")
    if sys.platform == "win32":
        raise ImportError("stoker needs Linux; it has not been made to work on Windows")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
