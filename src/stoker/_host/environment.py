"""Describes where this process runs: system, container, environment, versions. Never raises; imports no torch."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from stoker._host.kernel_files import text

_VARIABLES = (
    "OMP_NUM_THREADS",
    "OMP_THREAD_LIMIT",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
    "TOKENIZERS_PARALLELISM",
    "RAYON_NUM_THREADS",
    "POLARS_MAX_THREADS",
)
_PREFIX = "OPENCV_"
_PACKAGES = ("torch", "numpy", "stoker")
_RUNTIMES = (
    ("kubepods", "kubernetes"),
    ("docker", "docker"),
    ("libpod", "podman"),
    ("containerd", "containerd"),
    ("lxc", "lxc"),
)
"""What stands in the path of a container's cgroup, and what that means."""


class Mount(NamedTuple):
    """What is mounted at a place."""

    type: str
    source: str


def thread_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment's variables that settle how many threads libraries start."""
    found = {name: environ[name] for name in _VARIABLES if name in environ}
    return found | {name: value for name, value in environ.items() if name.startswith(_PREFIX)}


def container(root: Path, environ: Mapping[str, str]) -> str | None:
    """What kind of container this is, as far as anything tells. None is no proof that it is none."""
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "kubernetes"
    if _exists(root / ".dockerenv"):
        return "docker"
    if _exists(root / "run" / ".containerenv"):
        return "podman"
    path = text(root / "proc" / "self" / "cgroup")
    return next((name for word, name in _RUNTIMES if word in path), None)


def shm_mount(proc: Path) -> Mount | None:
    """What is mounted at /dev/shm, an empty type when nothing is; None if unknown."""
    lines = text(proc / "self" / "mountinfo").splitlines()
    found = None
    for line in lines:
        # "36 35 98:0 /root /dev/shm rw,nosuid shared:1 - tmpfs shm rw,size=65536k": the fields before " - " vary in number.
        place, _, what = line.partition(" - ")
        words = place.split()
        if len(words) > 4 and words[4] == "/dev/shm" and len(what.split()) > 1:
            kind, source = what.split()[:2]
            found = Mount(kind, source)  # the last one lies on top
    return found or (Mount("", "") if lines else None)


def is_shared(mount: Mount, container: str | None) -> bool:
    """Whether processes of other containers may use it: Docker calls a container's own "shm"; a pod has one for all."""
    return container is not None and (mount.source != "shm" or container == "kubernetes")


def system() -> str | None:
    """ "Linux", "Darwin", "Windows"."""
    return platform.system() or None


def gil() -> bool:
    """Whether one thread at a time runs Python."""
    return sys._is_gil_enabled() if hasattr(sys, "_is_gil_enabled") else True


def versions() -> dict[str, str]:
    """Return the versions of Python, of the system, and of packages as they are installed: importing them would take seconds."""
    from importlib.metadata import version

    found = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}".strip(),
    }
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except Exception:  # not installed, or its metadata is broken: no fact is worth a crash
            continue
    return found


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
