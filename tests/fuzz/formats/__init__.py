"""The registry of formats: each module here has a tuple ``FORMATS``."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from tests.fuzz.format import Format


def registry() -> dict[str, Format]:
    """All formats by name."""
    names = sorted(each.name for each in pkgutil.iter_modules(__path__))
    found = [each for name in names for each in import_module(f"{__name__}.{name}").FORMATS]
    assert len({each.name for each in found}) == len(found), "two formats have one name"
    return {each.name: each for each in found}
