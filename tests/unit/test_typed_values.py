"""Values that were read from somewhere, compared with declared types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

import pytest

from stoker._record.typed_values import wrong


@dataclass
class Inner:
    names: tuple[str, ...]
    pair: tuple[str, int] = ("a", 1)


class Outer(TypedDict):
    number: int
    later: float | None
    inner: dict[str, int]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (3, int),
        (3, float),
        (3.5, float | None),
        (None, float | None),
        (True, bool),
        ("text", str),
        ([1, 2], list[int]),
        (("a", 1), tuple[str, int]),
        ({"a": None}, dict[str, int | None]),
        ({"number": 1, "later": None, "inner": {}}, Outer),
        (Inner(("a", "b")), Inner),
        (object(), Any),
        ([object()], list),
    ],
)
def test_what_is_of_its_kind(value: Any, kind: Any) -> None:
    assert wrong(value, kind) == ""


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        (True, int, "it is no number that fits"),
        (1.5, int, "it is no number that fits"),
        (1 << 63, int, "it is no number that fits"),
        (float("nan"), float, "it is no number that fits"),
        (1e300, float | None, "it is no number that fits"),
        (1, bool, "it is a int"),
        (None, str, "it is no text"),
        ("x" * 200_000, str, "it is no text"),
        ((1, 2), list[int], "it is a tuple"),
        ([1, "2"], list[int], "it is no number that fits"),
        (("a",), tuple[str, int], "it is a tuple"),
        ({1: 1}, dict[str, int], "it is no text"),
        ([0] * 200_000, list[int], "it is a list"),
        ({"later": None, "inner": {}}, Outer, "number is missing"),
        ({"number": 1, "inner": {"a": "b"}}, Outer, "inner is no number that fits"),
        (7, Outer, "it is a int"),
        (Inner((1,)), Inner, "names is no text"),  # type: ignore[arg-type]
        (None, Inner, "it is null"),
    ],
)
def test_what_is_not(value: Any, kind: Any, words: str) -> None:
    assert wrong(value, kind) == words


def test_an_entry_that_may_be_none_is_filled_in() -> None:
    value: dict[str, Any] = {"number": 1, "inner": {}}
    assert wrong(value, Outer) == ""
    assert value["later"] is None
