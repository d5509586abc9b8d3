"""Looks at the process that has loaded the target. Runs in that very process: a fork has none of its threads."""

from __future__ import annotations

import importlib.metadata
import multiprocessing
import os
import platform
import sys
import threading
from typing import Any

from stoker._tools.doctor.facts.process import ForkUnsafeLibrary, ProcessFacts
from stoker._tools.probes import accelerator
from stoker._tools.sandbox.subject import Subject

_MODULES = (
    "PIL",
    "accelerate",
    "albumentations",
    "av",
    "cv2",
    "dask",
    "datasets",
    "decord",
    "fsspec",
    "gcsfs",
    "h5py",
    "lance",
    "lancedb",
    "lightning",
    "lmdb",
    "mkl",
    "numba",
    "numexpr",
    "numpy",
    "pandas",
    "polars",
    "pyarrow",
    "pytorch_lightning",
    "ray",
    "s3fs",
    "scipy",
    "sklearn",
    "tensorflow",
    "tokenizers",
    "torchaudio",
    "torchvision",
    "transformers",
    "webdataset",
    "zarr",
    "zarrs",
)
"""Packages that matter to loaders."""
_DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn", "lance": "pylance", "lightning": "lightning"}


_TOOLS = frozenset(
    (
        "IPython",
        "_pydevd_bundle",
        "debugpy",
        "ipykernel",
        "jupyter_client",
        "pydevd",
        "stoker",
        "tornado",
        "tqdm",
        "zmq",
    )
)
"""Packages of notebooks, debuggers and progress bars. Their threads hold no lock that a dataset could need."""


def _root_of(thread: threading.Thread) -> str:
    """The package whose code a thread runs: that of its class, or of the function that it was given."""
    kind = type(thread)
    module = kind.__module__
    if kind is threading.Thread:
        module = getattr(getattr(thread, "_target", None), "__module__", None) or ""
    return module.partition(".")[0]


def probe(subject: Subject) -> ProcessFacts:
    """Read it now, in some ten milliseconds. Starts nothing and settles nothing: not even the start method."""
    import torch

    from stoker._runtime.executors.process.start_method import live_hazards
    from stoker._runtime.protocol.default_device import default_device

    modules = tuple(name for name in _MODULES if name in sys.modules)
    apart = (threading.main_thread(), threading.current_thread())
    threads = [thread for thread in threading.enumerate() if thread not in apart]
    return ProcessFacts(
        python_threads=tuple(thread.name for thread in threads),
        tool_threads=tuple(thread.name for thread in threads if _root_of(thread) in _TOOLS),
        native_threads=_native_threads(),
        hazards=tuple(ForkUnsafeLibrary(each.module, each.pool) for each in live_hazards()),
        modules=modules,
        accelerator=accelerator.in_use(),
        default_device=str(default_device()),
        sharing_strategy=torch.multiprocessing.get_sharing_strategy(),  # type: ignore[no-untyped-call]
        start_method=start_method(),
        daemonic=bool(multiprocessing.current_process().daemon),
        interactive=interactive(sys.modules.get("__main__")),
        torch_threads=torch.get_num_threads(),
        threads_by_library=_threads_by_library(),
        versions=_versions(modules),
    )


def interactive(main: object) -> bool:
    """Whether a main module is one that no new process could import: a notebook's, a console's, standard input."""
    if getattr(main, "__spec__", None) is not None:
        return False
    file = getattr(main, "__file__", None)
    return file is None or not os.path.isfile(file)  # standard input calls itself "<stdin>"


def start_method() -> str:
    """What ``set_start_method`` was told, or the platform's default."""
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def _native_threads() -> int | None:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return None


def _threads_by_library() -> dict[str, int]:
    from stoker._runtime.worker.process.native_pools import threadpool_info

    found: dict[str, int] = {}
    for each in threadpool_info():
        name = str(each.get("prefix") or each.get("internal_api"))
        found[name] = max(found.get(name, 0), int(each.get("num_threads") or 0))
    cv2: Any = sys.modules.get("cv2")
    if cv2 is not None and hasattr(cv2, "getNumThreads"):
        found["cv2"] = int(cv2.getNumThreads())
    return found


def _versions(modules: tuple[str, ...]) -> dict[str, str]:
    import torch

    found = {"python": platform.python_version(), "torch": str(torch.__version__)}
    for name in modules:
        version = getattr(sys.modules[name], "__version__", None)
        if version is None:
            try:
                version = importlib.metadata.version(_DISTRIBUTIONS.get(name, name))
            except importlib.metadata.PackageNotFoundError:
                continue
        found[name] = str(version)
    return found
