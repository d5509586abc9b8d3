"""stoker: a drop-in replacement for the PyTorch DataLoader, with tools that find out why data loading is slow or broken."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker._runtime.cache.entry import cache as cache
    from stoker._runtime.cache.entry import cached as cached
    from stoker._runtime.executors.ray.options import Ray as Ray
    from stoker._runtime.plan.elastic_sampler import ElasticDistributedSampler as ElasticDistributedSampler
    from stoker._runtime.worker.rng.per_sample import generator as generator
    from stoker._sharing.containers.arrays import SharedArray as SharedArray
    from stoker._sharing.containers.dicts import SharedDict as SharedDict
    from stoker._sharing.containers.lists import SharedList as SharedList
    from stoker._sharing.containers.lists import SharedTuple as SharedTuple
    from stoker._sharing.containers.sets import SharedSet as SharedSet
    from stoker._sharing.share import share as share
    from stoker._tools.doctor.examination import doctor as doctor
    from stoker._tools.doctor.explain import explain as explain
    from stoker._tools.tune.tuning import tune as tune
    from stoker.loader import DataLoader as DataLoader

__version__ = "0.1.0"
__all__ = [
    "DataLoader",
    "ElasticDistributedSampler",
    "Ray",
    "SharedArray",
    "SharedDict",
    "SharedList",
    "SharedSet",
    "SharedTuple",
    "__version__",
    "cache",
    "cached",
    "doctor",
    "explain",
    "generator",
    "share",
    "tune",
]

_HOMES = {
    "DataLoader": "stoker.loader",
    "ElasticDistributedSampler": "stoker._runtime.plan.elastic_sampler",
    "Ray": "stoker._runtime.executors.ray.options",
    "SharedArray": "stoker._sharing.containers.arrays",
    "SharedDict": "stoker._sharing.containers.dicts",
    "SharedList": "stoker._sharing.containers.lists",
    "SharedSet": "stoker._sharing.containers.sets",
    "SharedTuple": "stoker._sharing.containers.lists",
    "cache": "stoker._runtime.cache.entry",
    "cached": "stoker._runtime.cache.entry",
    "doctor": "stoker._tools.doctor.examination",
    "explain": "stoker._tools.doctor.explain",
    "generator": "stoker._runtime.worker.rng.per_sample",
    "share": "stoker._sharing.share",
    "tune": "stoker._tools.tune.tuning",
}


def __getattr__(name: str) -> Any:
    """Public names are imported when first used: importing stoker alone costs nothing and starts nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'stoker' has no attribute {name!r}")
    if sys.platform == "win32":
        raise ImportError("stoker needs Linux; Windows is not supported")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
