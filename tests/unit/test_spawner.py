"""When a template pays: by the size of the pickle, and by the modules that come with it."""

from __future__ import annotations

import collections
import sys
from types import ModuleType
from typing import Any

import pytest

from stoker._pickling.spec_pickle import SpecPickle
from stoker._runtime.executors.process import spawner


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large package, and a module of the user's that uses it."""
    large = ModuleType("large")
    mine = ModuleType("mine")
    mine.__dict__["tool"] = large
    for module in (large, mine, *(ModuleType(f"large.part{number}") for number in range(60))):
        monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.parametrize(
    ("obj", "worthwhile"),
    [
        ([1, 2, 3], False),
        (list(range(1_000_000)), True),
        ({"rows": bytes(2 << 20)}, True),
        ({"rows": bytearray(100)}, False),
    ],
)
def test_size(obj: Any, worthwhile: bool) -> None:
    packed_spec = SpecPickle(obj)
    assert spawner._is_worthwhile(packed_spec) is worthwhile
    packed_spec.close()


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize(
    ("names", "count"),
    [
        (["torch.utils.data", "numpy", "json", "__main__"], 0),
        (["large.part3"], 61),
        (["mine"], 62),
        (["mine", "large"], 62),
        (["gone.since"], 0),
    ],
)
def test_modules(names: list[str], count: int) -> None:
    assert spawner._imports(names) == count


def test_a_packed_spec_knows_the_modules_it_names() -> None:
    packed_spec = SpecPickle({"class": collections.OrderedDict, "function": pytest.raises, "module": sys})
    assert {"collections", "sys", pytest.raises.__module__} <= packed_spec.modules
    packed_spec.close()
