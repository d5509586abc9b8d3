"""The versions of frameworks that the integrations are tested with; names an installed one that differs."""

from __future__ import annotations

import functools
import logging
from importlib.metadata import PackageNotFoundError, version

TESTED = {
    "accelerate": "1.15.0",
    "lightning": "2.6.6",
    "ray": "2.60.0",
    "transformers": "5.23.0",
}
"""By distribution. docs/frameworks.md and constraints.txt have the same."""

_log = logging.getLogger("stoker")


@functools.cache
def name_untested(package: str) -> None:
    """Say in the log that another version than the tested one is installed: one line for each package and process.

    Called by the integration when it is imported. Versions that differ behind major and minor count as tested.
    """
    tested = TESTED[package]
    try:
        installed = version(package)
    except PackageNotFoundError:
        installed = "of an unknown version"
    if installed.split(".")[:2] != tested.split(".")[:2]:
        _log.warning(
            "%s %s is installed; stoker.integrations.%s is tested with %s and may not work with it. If a loader misbehaves, "
            "install %s==%s",
            package, installed, package, tested, package, tested,
        )  # fmt: skip
