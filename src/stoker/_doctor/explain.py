"""``stoker.explain``: what a traceback, log or exception is about, whatever it is wrapped in."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stoker._core.finding import Finding
from stoker._doctor.catalogue import catalogue


@dataclass(frozen=True, slots=True)
class Explanation:
    """``finding`` is None when the failure was not recognised: ``procedure`` narrows it down then."""

    finding: Finding | None
    also: tuple[str, ...] = ()
    """Codes of what else was seen in the text."""


def explain(what: str | BaseException) -> Explanation:
    """What an error text or exception is about, and what to do."""
    text = str(what)
    for check in catalogue():
        if any(re.search(mark.pattern, text, re.MULTILINE) for mark in check.marks):
            return Explanation(check.finding(check.title, check.sections["Fix"]))
    return Explanation(None)
