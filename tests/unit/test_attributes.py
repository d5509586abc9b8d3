"""Attributes where they are stored: no code of the user's runs, and paths that lead nowhere are no errors."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from stoker._pickling.attributes import MISSING, Path, follow, read, slots_of, spell, write


class Guarded:
    """Everything but what is stored raises."""

    kind = "of the class"

    def __init__(self) -> None:
        self.__dict__["epoch"] = 1

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AssertionError(name)

    @property
    def epochs(self) -> int:
        raise AssertionError("a property")


class Slotted:
    __slots__ = ("__hidden", "epoch")
    epoch: int


class Both(Slotted):
    """Slots of its base and a dict of its own."""


def test_hooks_do_not_run() -> None:
    obj = Guarded()
    write(obj, "epochs", 5)
    write(obj, "epoch", 2)
    assert vars(obj) == {"epoch": 2, "epochs": 5}
    assert read(obj, "epoch") == 2
    assert read(obj, "kind") is MISSING
    write(obj, "epochs", MISSING)
    write(obj, "epochs", MISSING)
    assert vars(obj) == {"epoch": 2}


@pytest.mark.parametrize("kind", [Slotted, Both])
def test_slots(kind: type[Slotted]) -> None:
    obj = kind()
    assert set(slots_of(kind)) == {"_Slotted__hidden", "epoch"}
    assert read(obj, "epoch") is MISSING
    write(obj, "epoch", MISSING)
    write(obj, "epoch", 3)
    write(obj, "_Slotted__hidden", 4)
    assert (obj.epoch, read(obj, "_Slotted__hidden")) == (3, 4)
    write(obj, "epoch", MISSING)
    assert not hasattr(obj, "epoch")


def test_an_object_without_a_place_is_left_alone() -> None:
    write(Slotted(), "other", 1)
    write(5, "other", 1)
    assert read(5, "other") is read(int, "other") is MISSING


def test_paths() -> None:
    inner, outer = Guarded(), Guarded()
    made_up: defaultdict[str, int] = defaultdict(int)
    write(outer, "parts", {"train": [None, inner], "counts": made_up})
    to_inner: Path = (("attribute", "parts"), ("item", "train"), ("item", 1))
    assert follow(outer, to_inner) is inner
    assert follow(outer, ()) is outer
    dead_ends: list[Path] = [
        (("attribute", "gone"), ("item", 0)),
        (("attribute", "parts"), ("item", "test")),
        (("attribute", "parts"), ("item", "train"), ("item", 2)),
        (("attribute", "parts"), ("item", "counts"), ("item", "a")),
        (("attribute", "epoch"), ("item", 0)),
    ]
    for path in dead_ends:
        assert follow(outer, path) is MISSING
    assert not made_up
    assert spell(to_inner, "epoch") == "dataset.parts['train'][1].epoch"
    assert spell((), "epoch") == "dataset.epoch"
