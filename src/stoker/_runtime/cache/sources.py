"""Tells user code from libraries, and reads what stands for each: the source of one, the version of the other.

Nothing is imported here: a module that a function imports later counts the same before and after that.
"""

from __future__ import annotations

import functools
import os
import site
import sys
import sysconfig
from contextlib import suppress
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

_SCHEMES = ("stdlib", "platstdlib", "purelib", "platlib")
_LIBRARIES = tuple(
    {
        os.path.realpath(path) + os.sep
        for path in (
            *(sysconfig.get_paths()[each] for each in _SCHEMES),
            *site.getsitepackages(),
            site.getusersitepackages(),
        )
        if path
    }
)
_SELF = os.path.realpath(os.path.dirname(os.path.dirname(os.path.dirname(__file__)))) + os.sep
_PACKAGES = (
    "torch",
    "torchvision",
    "numpy",
    "pillow",
    "opencv-python",
    "opencv-python-headless",
    "opencv-contrib-python",
    "opencv-contrib-python-headless",
)


def is_library(path: str) -> bool:
    """Whether a file belongs to Python, an installed package, or stoker."""
    path = os.path.realpath(path)
    return path.startswith(_LIBRARIES) or path.startswith(_SELF)


def is_library_module(name: str | None) -> bool:
    """Whether a module that is loaded belongs to Python, an installed package, or stoker."""
    top = (name or "").partition(".")[0]
    path = getattr(sys.modules.get(name or ""), "__file__", None)
    if path is None:
        return top in sys.stdlib_module_names and top != "__main__"
    return is_library(path)


@functools.cache
def versions() -> bytes:
    """The versions that are installed. Which of them a process has imported so far says nothing about its samples."""
    found = []
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found.append((name, metadata.version(name)))
    return repr((sys.version_info[:3], sys.byteorder, found)).encode()


def version_of(module: str | None) -> bytes:
    """Return what stands for a library that is loaded: its name, and its version or the stamp of its file."""
    top = (module or "").partition(".")[0]
    if top in sys.stdlib_module_names:
        return top.encode()
    found = sys.modules.get(top)
    version = getattr(found, "__version__", None)
    if not isinstance(version, str):
        version = stamp_of_file(getattr(found, "__file__", None)).decode()
    return f"{top}:{version}".encode()


def source_of(module: ModuleType) -> bytes:
    """Return the digest of a module's file; b"" if it has none that can be read."""
    return _of_file(getattr(module, "__file__", None))


def source_by_name(name: str) -> bytes:
    """Return what stands for a module that may not be imported yet; b"" if there is none."""
    path: Any = None
    spec = None
    parts = name.split(".")
    for place in range(len(parts)):
        if not place and parts[0] in sys.stdlib_module_names:
            return parts[0].encode()
        if place and path is None:  # the one before is no package
            return b""
        spec = _spec(".".join(parts[: place + 1]), path)
        if spec is None:
            return b""
        path = spec.submodule_search_locations
    origin = None if spec is None else spec.origin
    if origin is not None and os.path.isabs(origin) and is_library(origin):
        return stamp_of_file(origin)
    return _of_file(origin)


def _spec(name: str, path: Any) -> Any:
    for finder in sys.meta_path:
        with suppress(Exception):
            spec = finder.find_spec(name, path)
            if spec is not None:
                return spec
    return None


def _of_file(path: Any) -> bytes:
    if not isinstance(path, str):
        return b""
    try:
        facts = os.stat(path)
        return _read(path, facts.st_size, facts.st_mtime_ns)
    except OSError:
        return b""


@functools.lru_cache(4096)
def _read(path: str, size: int, mtime_ns: int) -> bytes:
    return blake2b(Path(path).read_bytes(), digest_size=16).digest()


def stamp_of_file(path: Any) -> bytes:
    """Size and mtime of a file that a value names; b"" for anything else."""
    try:
        if len(str(path)) > 4096 or not Path(path).is_file():
            return b""
        facts = os.stat(path)
    except (OSError, TypeError, ValueError):
        return b""
    return f"{facts.st_size}:{facts.st_mtime_ns};".encode()
