"""Searches a text for the marks of all checks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from stoker._tools.doctor.check import Mark
from stoker._tools.doctor.reading.logs import Log

NOTE_WEIGHT = 100
"""Of a code that stoker itself has written below an error."""
WARNING_WEIGHT = 5
"""Marks below this are of warnings: they name no failure while something else has failed."""
QUOTED_WEIGHT = 9
"""At most this much has a mark that only a quoted line of source bears: notebooks and rich print the lines around a call."""
_QUOTED_LINE = re.compile(r"[ \t]*\d{1,5}[ \t│]")
_BEFORE_CHARS, _AFTER_CHARS = 8000, 4000
"""Around a match: where its ``also`` and ``never`` are looked for."""
_MOST_MATCHES = 1000
"""Of a mark that a text repeats without end: the first and the last of them are looked at."""
_PASSED = re.compile(
    r"(?:(?:\A|(?<=(?:it/s|s/it)\]\n))(?:\w+\.)*\w+Error: [^\n]*\n(?=Exception ignored))?"  # a bar may stand before it
    r"Exception ignored (?:in|while)[^\n]*\n(?:Traceback[^\n]*\n)?"
    r"(?:(?!Traceback|[\w.]+(?:Error|Exception|Interrupt|Exit)\b)[^\n]+\n){0,60}"
    r"(?:[\w.]+(?:Error|Exception|Interrupt|Exit)\b[^\n]*)?"
    r"|^[^\n]{0,2000}(?:; a new worker takes its place|[\[(:] ?stoker explain STK\d{3}[\])])[^\n]*(?:\n[ \t]+[^\n]*)*",
    re.MULTILINE,
)
"""What the run went on after: exceptions that Python could not raise (a clean-up that failed), warnings of stoker's with all
that is said in them."""
_RAISED = re.compile(
    r"^(?:\w+\.)*[A-Z]\w*(?:Error|Exception)(?:\b|Traceback \(most)|\braised \w+Error\b|\b[A-Z]\w*(?:Error|Exception)\([\"']|"
    r"^CUDA error: "
    r"|^Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n)+(?!KeyboardInterrupt)[\w.]+(?:: |$)"
    r"|\b[A-Z]\w*(?:Error|Exception): \S|\b[Rr]aise \w+Error\b|^Error executing job with overrides",
    re.MULTILINE,
)
_NOTED = re.compile(r"stoker explain (STK\d{3})")
_NOT_LINES = re.compile(r"[^\n]")
_WARNINGS = ("STK303", "STK502", "STK804", "STK807")
"""Codes that stoker notes below warnings: an error counts for more."""


@dataclass(frozen=True, slots=True)
class FoundMark:
    """A mark that was found."""

    code: str
    weight: int
    place: int
    line_number: int
    line: str


def signs(log: Log, marks: Mapping[str, Sequence[Mark]]) -> list[FoundMark]:
    """Marks, given by code, in a text: the strongest of each code, the most telling first (by weight, then by place).

    What the run went on after is the failure only where nothing else has failed, else no more than a warning.
    """
    raised = _PASSED.sub(lambda match: _NOT_LINES.sub(" ", match[0]), log.text)
    found = _found(log, raised, marks)
    if raised != log.text:
        everything = _found(log, log.text, marks)
        if any(sign.weight >= WARNING_WEIGHT for sign in found) or _RAISED.search(raised):
            known = {sign.code for sign in found}
            mild = WARNING_WEIGHT - 1
            found += [
                replace(each, weight=min(each.weight, mild)) for each in everything if each.code not in known
            ]
        else:
            found = everything
    return sorted(found, key=lambda sign: (-sign.weight, sign.place))


def _found(log: Log, text: str, marks: Mapping[str, Sequence[Mark]]) -> list[FoundMark]:
    found: dict[str, FoundMark] = {}
    for match in _NOTED.finditer(text):
        weight = NOTE_WEIGHT - 10 * (match[1] in _WARNINGS)
        _add(found, FoundMark(match[1], weight, match.start(), *log.at(match.start())))
    for code, each in marks.items():
        for mark in each:
            if code in found and found[code].weight >= mark.weight:
                continue
            place, quoted = _place(mark, text)
            if place is not None:
                weight = min(mark.weight, QUOTED_WEIGHT) if quoted else mark.weight
                _add(found, FoundMark(code, weight, place, *log.at(place)))
    return list(found.values())


def _add(found: dict[str, FoundMark], sign: FoundMark) -> None:
    known = found.get(sign.code)
    if known is None or sign.weight > known.weight:
        found[sign.code] = sign


def _place(mark: Mark, text: str) -> tuple[int | None, bool]:
    """Where a mark is first found with all that must stand near it and nothing that must not; True if only in quoted source."""
    quoted: int | None = None
    matches = list(compiled(mark.pattern).finditer(text))
    if len(matches) > _MOST_MATCHES:
        matches = matches[: _MOST_MATCHES // 2] + matches[-_MOST_MATCHES // 2 :]
    for match in matches:
        around = text[max(0, match.start() - _BEFORE_CHARS) : match.end() + _AFTER_CHARS]
        if all(compiled(each).search(around) for each in mark.also) and not any(
            compiled(each).search(around) for each in mark.never
        ):
            place = match.start() + len(match[0]) - len(match[0].lstrip())
            if not _QUOTED_LINE.match(text, text.rfind("\n", 0, place) + 1, place + 1):
                return place, False
            quoted = place if quoted is None else quoted
    return quoted, quoted is not None


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """A mark's pattern. A space in it matches a line's end too: what people paste is often broken anew."""
    return re.compile(_spaced(pattern), re.MULTILINE)


def _spaced(pattern: str) -> str:
    """Spaces become "some white space": those outside of character classes that are neither escaped nor repeated."""
    out: list[str] = []
    inside = False
    place = 0
    while place < len(pattern):
        letter = pattern[place]
        if letter == "\\":
            out.append(pattern[place : place + 2])
            place += 2
            continue
        if letter == "[" and not inside:
            inside = True
        elif letter == "]" and inside and pattern[place - 1] not in "[^":
            inside = False
        repeated = pattern[place + 1 : place + 2] in ("*", "+", "?", "{")
        out.append(r"\s{1,40}" if letter == " " and not inside and not repeated else letter)
        place += 1
    return "".join(out)
