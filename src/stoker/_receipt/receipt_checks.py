"""Checks what a receipt's file says before anything is computed from it. Raises ValueError for what cannot be. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from stoker._receipt.data_receipt import ReceiptBefore, ReceiptFacts
from stoker._receipt.mixing import MASK

MOST_PLACES = 1 << 24
"""Sums that a receipt may have, counted from the first batch of its epoch: 128 MB. Beyond, they are read at a coarser grain."""
_MOST = 1 << 62
_MOST_RANKS = 1 << 20

_Check = Callable[[Any], bool]


def _whole(least: int, most: int) -> _Check:
    return lambda value: type(value) is int and least <= value <= most


def _maybe(check: _Check) -> _Check:
    return lambda value: value is None or check(value)


def _every(check: _Check) -> _Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _pair(first: _Check, second: _Check) -> _Check:
    return lambda value: isinstance(value, list) and len(value) == 2 and first(value[0]) and second(value[1])


def _text(value: Any) -> bool:
    return type(value) is str


def _flag(value: Any) -> bool:
    return type(value) is bool


_count, _digest, _number = _whole(0, _MOST), _whole(0, MASK), _whole(-MASK, MASK)
_BEGUN: dict[str, _Check] = {
    "epoch": _count, "seed": _number, "sampler_epoch": _maybe(_number), "first": _count, "resumed": _flag, "previous": _digest,
}  # fmt: skip
_TOTALS: dict[str, _Check] = {
    "batches": _count, "samples": _count, "finished": _flag, "digest": _digest, "order": _digest, "samples_digest": _digest,
    "ascending": _flag, "whole": _flag, "told": _flag, "bad": _every(_pair(_count, _text)), "bad_count": _count,
    "replaced": _flag, "failed": _every(_count), "failed_count": _count, "contents": _every(_pair(_count, _digest)),
    "missing": _maybe(_text),
}  # fmt: skip
_BEFORE: dict[str, _Check] = {
    "batches": _count,
    "samples": _count,
    "digest": _digest,
    "samples_digest": _digest,
}
_FACTS: dict[str, _Check] = {
    "name": _text, "dataset": _text, "kind": _text, "length": _maybe(_count), "identity": _text, "rank": _whole(0, _MOST_RANKS),
    "world_size": _whole(1, _MOST_RANKS), "samplers": _every(_text), "divided_by": _every(_count),
    "sampler_length": _maybe(_count), "shuffles": _maybe(_flag), "replacement": _flag, "batch_size": _maybe(_count),
    "drop_last": _flag, "rng": _text, "pid": _count, "loader": _digest, "began_unix_ns": _number,
}  # fmt: skip


def begun(data: Any) -> dict[str, Any]:
    """What stands in a header, with facts that are known. Entries that a later version added are left out."""
    found = _checked(data, _BEGUN)
    facts = data.get("facts")
    known = {each.name for each in fields(ReceiptFacts)}
    given = {name: value for name, value in _mapping(facts).items() if name in known}
    told = _checked(given, {name: check for name, check in _FACTS.items() if name in given})
    told |= {name: tuple(told[name]) for name in ("samplers", "divided_by") if name in told}
    before = data.get("before")
    found["facts"] = ReceiptFacts(**told)
    found["before"] = None if before is None else ReceiptBefore(**_checked(before, _BEFORE))
    return found


def totals(data: Any) -> dict[str, Any]:
    """The sums so far."""
    found = _checked(data, _TOTALS)
    found["bad"] = [(number, index) for number, index in found["bad"]]
    found["contents"] = [(number, content) for number, content in found["contents"]]
    return found


def grain_for(end: int, grain: int) -> int:
    """The grain at which an epoch of so many batches has no more sums than a reader has room for."""
    while end // grain > MOST_PLACES:
        grain *= 2
    return grain


def _checked(data: Any, checks: Mapping[str, _Check]) -> dict[str, Any]:
    given = _mapping(data)
    for name, check in checks.items():
        if name not in given:
            raise ValueError(f"{name} is missing")
        if not check(given[name]):
            raise ValueError(f"{name} is {_shown(given[name])}")
    return {name: given[name] for name in checks}


def _mapping(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ValueError(f"{_shown(data)} is no object")
    return data


def _shown(value: Any) -> str:
    """Return a text, also of a number with thousands of digits, of which Python makes none."""
    if isinstance(value, int) and abs(value) > MASK:
        return "out of range"
    return f"a {type(value).__name__}" if isinstance(value, dict | list) else f"{value!r:.40}"
