"""Imports a framework for the tests: skips where it is not installed, and fails in CI, where it has to be."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

APART = Path(sys.prefix) / "apart"
"""Packages that need torchvision. Its wheel does not import beside every build of torch, so they are not on the path."""


def needs(*names: str) -> Any:
    """The first of these modules; all are imported. Called at the top of a test module."""
    for name in names:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(name)
        except ImportError as error:
            absent(
                f"{name} cannot be imported: {error}. `make setup` installs it, or pip install '.[frameworks]'"
            )
    return sys.modules[names[0]]


def absent(reason: str) -> None:
    """End the test module: with a failure in CI, elsewhere as skipped."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason, allow_module_level=True)
