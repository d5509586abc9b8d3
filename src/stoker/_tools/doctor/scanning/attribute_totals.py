"""Counts bytes and objects for the attribute that holds them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from stoker._tools.doctor.facts.scan import AttributeTotal
from stoker._tools.doctor.scanning.paths import WalkNode, spell

_PAGE = 4096
_HEADER = 64
"""Of a list, dict or set: what is written to when it is looked at. Its table of items lies elsewhere."""

_TABLED = (list, dict, set, frozenset)


@dataclass(slots=True, eq=False)
class AttributeAccount:
    """What one attribute holds. ``node`` leads to it."""

    node: WalkNode
    kind: str
    items: int = 1
    nbytes: float = 0.0
    objects: float = 0.0
    copied_bytes: float = 0.0
    tensors: float = 0.0
    backing: str = "private"
    about: bool = False

    def book(self, nbytes: float, objects: float = 0.0, copied_bytes: float = 0.0) -> None:
        """Add something that is here."""
        self.nbytes += nbytes
        self.objects += objects
        self.copied_bytes += copied_bytes

    def part(self) -> AttributeTotal:
        """As a fact."""
        return AttributeTotal(
            spell(self.node), self.kind, self.items, round(self.nbytes), round(self.objects), round(self.copied_bytes),
            self.backing, self.about,
        )  # fmt: skip


def own_bytes(obj: Any) -> int:
    """What the object itself takes, without what it refers to. No ``__sizeof__`` of the user's runs."""
    kind = type(obj)
    size: Any = kind.__sizeof__
    if kind.__flags__ & (1 << 9):  # defined in Python: its class may have anything
        base = next((each for each in (list, dict, set, frozenset, tuple) if issubclass(kind, each)), object)
        size = base.__sizeof__
    try:
        return int(size(obj)) + 16
    except Exception:  # a type that does not tell
        return _HEADER


def atom_bytes(obj: Any) -> int:
    """What a number or text takes; nothing for those that the interpreter keeps once for all."""
    if obj is None or obj is True or obj is False or (type(obj) is int and -6 < obj < 257):
        return 0
    return sys.getsizeof(obj)


def copied_bytes(obj: Any, size: int) -> int:
    """How much of an object shares pages with its reference count."""
    return min(size, _HEADER) if issubclass(type(obj), _TABLED) else min(size, _PAGE)


def largest(accounts: list[AttributeAccount], most: int) -> tuple[AttributeTotal, ...]:
    """Return the attributes that matter: by bytes, and by what reading would copy."""
    by_bytes = sorted(accounts, key=lambda each: -each.nbytes)[:most]
    by_copies = sorted(accounts, key=lambda each: -each.copied_bytes)[:most]
    chosen = {id(each): each for each in (*by_bytes, *by_copies) if each.nbytes or each.copied_bytes}
    return tuple(each.part() for each in sorted(chosen.values(), key=lambda each: -each.nbytes))
