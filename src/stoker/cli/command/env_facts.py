"""Gathers the facts of a bug report as plain data. Imports no torch, asks no device, and includes nothing personal."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import stoker
from stoker._host.environment import container, gil, thread_variables
from stoker._host.kernel_files import space, text
from stoker._host.limits import INFINITE, resource_limit
from stoker._record.readings import machine

FORMAT, VERSION = "stoker-env", 1
REQUIRED = ("torch", "numpy", "cloudpickle", "psutil", "threadpoolctl", "click", "rich")
OPTIONAL = (
    "pillow", "prometheus-client", "tensorboard", "opencv-python", "opencv-python-headless", "albumentations", "torchvision",
    "torchdata", "pandas", "polars", "pyarrow", "datasets", "lightning", "accelerate", "timm", "ray",
)  # fmt: skip
"""What stoker's extras install, and what people use beside a loader."""

_VARIABLES = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "TORCHELASTIC_RESTART_COUNT",
    "SLURM_NTASKS_PER_NODE", "SLURM_CPUS_PER_TASK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
    "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "HIP_VISIBLE_DEVICES", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
    "KMP_AFFINITY", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "LD_PRELOAD",
    "PYTHONHASHSEED", "PYTHONMALLOC", "PYTHON_GIL", "TMPDIR", "LC_ALL", "LANG", "TERM", "NO_COLOR",
)  # fmt: skip
"""The only ones that are read, beside those of thread pools and STOKER_*: whatever else is set stays where it is."""
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|KEY", re.IGNORECASE)
_LONGEST = 200


def gathered(environ: Mapping[str, str] = os.environ, *, root: Path = Path("/")) -> dict[str, Any]:
    """Everything, now, in some 50 ms. ``root`` stands in for this machine's. Never raises. Plain JSON."""
    found = asdict(
        machine.facts(sys_root=root / "sys/fs/cgroup", proc=root / "proc", shm=str(root / "dev/shm"))
    )
    _, hard = resource_limit("RLIMIT_NOFILE")
    for name in ("versions", "accelerators", "gil"):
        found.pop(name)
    return {
        "format": FORMAT,
        "version": VERSION,
        "stoker": {"version": stoker.__version__, "installed": "-packages" in (stoker.__file__ or "")},
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "gil": gil(),
            "virtual_environment": sys.prefix != sys.base_prefix,
            "start_method": _start_method(),
        },
        "system": {
            "name": platform.system(),
            "release": platform.release(),
            "machine": platform.machine(),
            "libc": _libc(),
            "container": container(root, environ),
        },
        "machine": {**found, "hard_descriptors": None if hard == INFINITE else hard},
        "accelerators": accelerators(root),
        "filesystems": _filesystems(environ, root / "proc"),
        "environment": variables(environ),
        "packages": {name: _version(name) for name in REQUIRED}
        | {name: version for name in OPTIONAL if (version := _version(name)) is not None},
    }


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that change what a loader does, by name.

    Paths are without their owner's name. Variables that sound like a secret are left out.
    """
    names = [name for name in _VARIABLES if name in environ]
    names += sorted(name for name in environ if name.startswith("STOKER_"))
    chosen = thread_variables(environ) | {name: environ[name] for name in names}
    return {
        name: "(set, not shown)" if _SECRET.search(name) else impersonal(value, environ)[:_LONGEST]
        for name, value in chosen.items()
    }


def impersonal(told: str, environ: Mapping[str, str] = os.environ) -> str:
    """A text in which the home folder and the user's name are ``~``."""
    home = environ.get("HOME", "").rstrip("/")
    if home:
        told = re.sub(re.escape(home) + r"(?=/|:|$)", "~", told)
    for name in {environ.get("USER", ""), environ.get("LOGNAME", ""), os.path.basename(home)} - {""}:
        told = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", "~", told)
    return told


def accelerators(root: Path = Path("/")) -> list[str]:
    """What drivers have put into /dev and /proc, in words: asking a device itself would initialise it."""
    found = []
    nodes = _names(root / "dev", r"nvidia\d+")
    if nodes:
        told = re.search(r"\b\d+\.\d+(\.\d+)?\b", text(root / "proc/driver/nvidia/version"))
        found.append(f"{len(nodes)} × NVIDIA" + (f", driver {told[0]}" if told else ""))
    if (root / "dev/kfd").exists():
        found.append("AMD (/dev/kfd)")
    for label, pattern in (("Habana", r"hl\d+"), ("TPU", r"accel\d+"), ("Neuron", r"neuron\d+")):
        nodes = _names(root / "dev", pattern)
        if nodes:
            found.append(f"{len(nodes)} × {label}")
    return found


def torch_facts() -> dict[str, Any]:
    """What only torch itself can tell: imports it, which takes seconds, and asks it for devices, which initialises them."""
    import torch
    import torch.multiprocessing

    sharing: Any = torch.multiprocessing
    found: dict[str, Any] = {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "threads": torch.get_num_threads(),
        "sharing_strategy": sharing.get_sharing_strategy(),
        "devices": [],
    }
    try:
        if torch.cuda.is_available():
            found["devices"] = [torch.cuda.get_device_name(each) for each in range(torch.cuda.device_count())]
        elif torch.backends.mps.is_available():
            found["devices"] = ["Apple GPU"]
    except Exception as error:  # a driver that is half there is what such a report is about
        found["devices_error"] = impersonal(str(error))[:_LONGEST]
    return found


def filesystem_of(path: str, mountinfo: Iterable[str]) -> str | None:
    """The type of what is mounted where ``path`` (absolute, real) lies: "ext4"; None if unknown."""
    found: tuple[int, str] | None = None
    for line in mountinfo:
        place, _, what = line.partition(" - ")
        words = place.split()
        if len(words) < 5 or not what:
            continue
        point = re.sub(r"\\(\d{3})", lambda each: chr(int(each[1], 8)), words[4]).rstrip("/")
        inside = path == point or path.startswith(point + "/")
        if inside and (found is None or len(point) >= found[0]):  # of two at one place the last lies on top
            found = (len(point), what.split()[0])
    return None if found is None else found[1]


def _filesystems(environ: Mapping[str, str], proc: Path) -> dict[str, dict[str, Any]]:
    lines = text(proc / "self/mountinfo").splitlines()
    found = {}
    for name, path in (("working folder", os.curdir), ("temporary files", environ.get("TMPDIR", "/tmp"))):
        size, free = space(path)
        kind = filesystem_of(os.path.realpath(path), lines)
        found[name] = {"type": kind, "bytes": size, "free_bytes": free}
    return found


@cache
def _version(name: str) -> str | None:
    from importlib.metadata import version

    try:
        return version(name)
    except Exception:  # not installed, or its metadata is broken: no fact is worth a crash
        return None


def _start_method() -> str:
    from multiprocessing import get_all_start_methods

    return get_all_start_methods()[0]  # the platform's default comes first


def _libc() -> str | None:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, ValueError, OSError):
        return " ".join(platform.libc_ver()).strip() or None


def _names(folder: Path, pattern: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if re.fullmatch(pattern, name)]
    except OSError:
        return []
