"""A text that a regular expression would find, made for people to read: what varies is "…", a number N."""

from __future__ import annotations

import re
from re import _constants as kinds  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

_LONGEST = 110


def sample(pattern: str) -> str:
    """One line. Of alternatives the first stands for all; what may be left out is left out."""
    text = "".join(map(_said, parser.parse(pattern, re.MULTILINE)))
    text = re.sub(r"…(?:\s*…)+", "…", " ".join(text.split())).strip()
    text = re.sub(r"\bN(?:[., ]*N)+\b", "N", text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _said(part: tuple[Any, Any]) -> str:
    kind, value = part
    if kind is kinds.LITERAL:
        return chr(value)
    if kind in (kinds.NOT_LITERAL, kinds.ANY):
        return "…"
    if kind is kinds.IN:
        return _class(value)
    if kind is kinds.BRANCH:
        return "".join(map(_said, value[1][0]))
    if kind is kinds.SUBPATTERN:
        return "".join(map(_said, value[3]))
    if kind is kinds.ATOMIC_GROUP:
        return "".join(map(_said, value))
    if kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT):
        least, most = int(value[0]), int(value[1])
        text = "".join(map(_said, value[2]))
        if text in ("…", "N"):
            return "" if most == 1 and not least else text
        return text * max(least, 1 if most > 1 else 0)
    return ""  # beginnings, ends, and what stands near


def _class(members: list[tuple[Any, Any]]) -> str:
    kind, value = members[0]
    if kind is kinds.LITERAL and len(members) <= 2:
        return chr(value)
    if kind is kinds.CATEGORY and value is kinds.CATEGORY_DIGIT:
        return "N"
    if kind is kinds.CATEGORY and value is kinds.CATEGORY_SPACE:
        return " "
    if kind is kinds.RANGE and value == (ord("0"), ord("9")):
        return "N"
    return "…"
