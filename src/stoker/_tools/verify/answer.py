"""The answers of ``stoker verify``: each is one sentence about some epochs of one loader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from stoker._tools.verify.codes import CODES

Level = Literal["ok", "note", "fault"]
Question = Literal["runs", "samples", "legs", "order", "files"]


@dataclass(frozen=True, slots=True)
class VerifyAnswer:
    """One sentence. ``code`` names it (``stoker explain CODE``); ``epochs`` are those it is about, none for the whole run."""

    question: Question
    level: Level
    code: str
    text: str
    loader: str = ""
    epochs: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"no such answer: {self.code!r}")


def grouped(answers: Iterable[VerifyAnswer]) -> list[VerifyAnswer]:
    """Equal answers about several epochs become one. Faults come first within a question."""
    found: dict[tuple[str, ...], list[VerifyAnswer]] = {}
    for each in answers:
        found.setdefault((each.question, each.level, each.code, each.text, each.loader), []).append(each)
    merged = [
        VerifyAnswer(
            group[0].question,
            group[0].level,
            group[0].code,
            group[0].text,
            group[0].loader,
            tuple(sorted({epoch for each in group for epoch in each.epochs})),
        )
        for group in found.values()
    ]
    ranks = {"fault": 0, "note": 1, "ok": 2}
    questions = ("files", "runs", "samples", "legs", "order")
    return sorted(merged, key=lambda each: (questions.index(each.question), ranks[each.level], each.epochs))


def numbers(values: Sequence[int], most: int = 8) -> str:
    """Some whole numbers as ranges: "0–3, 7 and 12 more"."""
    spans: list[list[int]] = []
    for value in values:
        if spans and value == spans[-1][1] + 1:
            spans[-1][1] = value
        else:
            spans.append([value, value])
    shown = [str(a) if a == b else f"{a}, {b}" if b == a + 1 else f"{a}–{b}" for a, b in spans[:most]]
    left = sum(b - a + 1 for a, b in spans[most:])
    return ", ".join(shown) + (f" and {left} more" if left else "")


def counted(count: int, noun: str) -> str:
    """A number with its noun: "1 batch", "12 batches"."""
    ending = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count} {noun}{ending}"
