"""Tells the package's own files, libraries and the user's files apart, by where they really lie.

A folder called ``stoker`` proves nothing: most clones of this project have that name, and users keep scripts in them.
"""

from __future__ import annotations

import os
import sys

PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
"""The folder of the ``stoker`` package in this process, with a separator at its end."""

_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
_STANDARD = (
    os.path.join(os.path.dirname(os.path.abspath(os.__file__)), ""),
    os.path.join(
        sys.exec_prefix, sys.platlibdir, _PYTHON, ""
    ),  # sysconfig says the same, and takes 1 ms to import
)
_INSTALLED = (f"site-packages{os.sep}", f"dist-packages{os.sep}")


def is_stoker(path: str) -> bool:
    """Whether a file belongs to the package itself."""
    return path.startswith(PACKAGE)


def is_standard(path: str) -> bool:
    """Whether a file comes with Python."""
    return path.startswith("<frozen") or (path.startswith(_STANDARD) and not is_installed(path))


def is_installed(path: str) -> bool:
    """Whether a file lies where packages are installed."""
    return any(folder in path for folder in _INSTALLED)


def is_library(path: str) -> bool:
    """Whether a file is installed, comes with Python, or is ours: anything but the user's own."""
    return is_stoker(path) or is_installed(path) or path.startswith(("<frozen", *_STANDARD))
