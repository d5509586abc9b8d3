"""Precision and recall, per code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple


class Score(NamedTuple):
    """``right``, ``wrong`` and ``missed`` findings, by code."""

    right: Counter[str]
    wrong: Counter[str]
    missed: Counter[str]

    @property
    def precision(self) -> float:
        """The part of the findings that is right."""
        found = self.right.total() + self.wrong.total()
        return self.right.total() / found if found else 1.0

    @property
    def recall(self) -> float:
        """The part of the faults that is found."""
        there = self.right.total() + self.missed.total()
        return self.right.total() / there if there else 1.0


def score(cases: Iterable[tuple[frozenset[str], frozenset[str], frozenset[str]]]) -> Score:
    """Add up cases of (expected, also true, found)."""
    total = Score(Counter(), Counter(), Counter())
    for expected, also, found in cases:
        total.right.update(expected & found)
        total.missed.update(expected - found)
        total.wrong.update(found - expected - also)
    return total


def table(total: Score) -> str:
    """A line per code: right, wrong, missed, precision, recall."""
    lines = [f"{'code':8}{'right':>6}{'wrong':>6}{'missed':>7}  precision  recall"]
    codes = sorted({*total.right, *total.wrong, *total.missed})
    parts = {code: Score(*(Counter({code: part[code]}) for part in total)) for code in codes}
    for code, one in (*parts.items(), ("all", total)):
        counts = f"{one.right.total():6}{one.wrong.total():6}{one.missed.total():7}"
        lines.append(f"{code:8}{counts}  {one.precision:9.2f}  {one.recall:6.2f}")
    return "\n".join(lines)
