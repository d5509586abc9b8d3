"""Packs the data of a report into its page, so that it can be taken out again: JSON, gzip, base64. Pure.

The page has a size that it must not pass. What does not fit is thinned: of the table of steps, which is nearly all of a large
record, the middle goes, as it does in a record itself (``steps_dropped``). The page says so.
"""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass
from typing import Any

_LEAST_STEPS = 64


@dataclass(frozen=True, slots=True)
class EmbeddedData:
    """One of them. ``packed`` is None when it does not fit at all."""

    name: str
    packed: str | None
    size_bytes: int
    """Of the JSON that is in the page."""
    left_out: int
    """Steps that are not."""


def embedded(raw: dict[str, Any], room_bytes: int) -> list[EmbeddedData]:
    """Return all series, thinned where they would take more than ``room_bytes`` together: each has its part of what is left."""
    found = []
    for number, (name, value) in enumerate(raw.items()):
        made = _fitted(name, value, room_bytes // (len(raw) - number))
        room_bytes -= len(made.packed or "")
        found.append(made)
    return found


def _fitted(name: str, value: Any, room_bytes: int) -> EmbeddedData:
    text = _dumped(value)
    packed = _packed(text)
    most = max((len(_column(each)) for each in _tables(value)), default=0)
    left_out = 0
    while len(packed) > room_bytes:
        if most <= _LEAST_STEPS:
            return EmbeddedData(name, None, len(text), left_out)
        most = max(_LEAST_STEPS, min(most // 2, most * room_bytes // len(packed)))
        thin, left_out = _thinned(value, most)
        text = _dumped(thin)
        packed = _packed(text)
    return EmbeddedData(name, packed, len(text), left_out)


def _dumped(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=repr)


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode("ascii")


def _tables(value: Any) -> list[dict[str, Any]]:
    """Everything in it that holds a table of steps, however deep: a record's loaders, and those of a record in a demo's."""
    if isinstance(value, dict):
        inner = [each for key, part in value.items() if key != "steps" for each in _tables(part)]
        return [value, *inner] if _column(value) else inner
    return [each for part in value for each in _tables(part)] if isinstance(value, list) else []


def _column(value: dict[str, Any]) -> list[Any]:
    steps = value.get("steps")
    if not isinstance(steps, dict) or "steps_dropped" not in value or not steps:
        return []
    column = next(iter(steps.values()))
    return column if isinstance(column, list) else []


def _thinned(value: Any, most: int) -> tuple[Any, int]:
    """A copy with tables of that many steps at most: their beginnings and their ends."""
    if isinstance(value, list):
        pairs = [_thinned(each, most) for each in value]
        return [each for each, _ in pairs], sum(count for _, count in pairs)
    if not isinstance(value, dict):
        return value, 0
    thin: dict[str, Any] = {}
    gone = 0
    more = len(_column(value)) - most
    for key, part in value.items():
        if key == "steps" and more > 0:
            thin[key] = {
                name: column[: most // 2] + column[most // 2 + more :] for name, column in part.items()
            }
        elif key == "steps":
            thin[key] = part
        else:
            thin[key], count = _thinned(part, most)
            gone += count
    if more > 0:
        thin["steps_dropped"] = value["steps_dropped"] + more
        gone += more
    return thin, gone
