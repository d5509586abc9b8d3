"""``stoker.explain``: says what a traceback, log or exception is about, whatever surrounds it.

```
text ─► logs: plain lines ─► recognition: marks of all checks ─► the strongest names it ─► clues, this machine ─► Explanation
```
"""

from __future__ import annotations

import contextlib
import re
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stoker._host.secrets import masked
from stoker._record.finding import Finding
from stoker._tools.doctor.catalogue import catalogue, check_of
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts.host import machine
from stoker._tools.doctor.reading import clues, logs
from stoker._tools.doctor.reading.recognition import NOTE_WEIGHT, WARNING_WEIGHT, FoundMark, signs
from stoker._tools.render.json_form import finding_form
from stoker.errors import Coded

PROCEDURE = (
    "num_workers=0. If it fails too, it is the dataset or the model: the traceback then shows where.",
    "num_workers=1, nothing else changed. If that fails: multiprocessing_context='spawn', then 'forkserver' (what fork copies).",
    "num_workers=2, 4, ... If only many fail: /dev/shm, descriptors, memory (stoker doctor without a target shows them).",
    "One suspect at a time: without transforms; collate_fn=list; pin_memory=False; persistent_workers=False.",
)
"""How to narrow down what is not known."""

_OWN_LINE = re.compile(r"^(?:\w+\.)*[A-Z]\w*(?:Error|Exception)\b", re.MULTILINE)
_FAILED = re.compile(
    r"Traceback \(most recent call last\)|\b\w*(?:Error|Exception)\b|^error: |^fatal: |^Killed\b|core dumped|panicked at|"
    r"Watchdog caught|failed assertion|Assertion [`'][^\n]{1,300}[`'] failed|\bAbort trap\b",
    re.MULTILINE,
)
"""Something went wrong, whatever it was: a warning does not explain it."""
_ADVICE = re.compile(r"(?P<prose>(?:(?!```)[^\n]+\n?)*)\s*(?P<code>```\w*\n.*?\n```)?", re.DOTALL)
_MOST_ALSO = 6
_ENDS = ("STK404", "STK8")
"""Codes of what became of a failure, as opposed to its cause."""


@dataclass(frozen=True, slots=True)
class OtherMatch:
    """Something else that was seen in the text, and why it is not the answer."""

    code: str
    title: str
    line_number: int
    reason: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a text is about. ``finding`` is None when nothing was recognised: ``procedure`` narrows it down then.

    The finding's evidence is the line that gave it away, its advice the fix; ``numbers`` has the clues. Secrets in them are
    hidden.
    """

    finding: Finding | None
    title: str = ""
    line_number: int = 0
    also: tuple[OtherMatch, ...] = ()
    """What else was seen."""
    clues: Mapping[str, str] = field(default_factory=dict)
    """What the text tells besides: pid, signal, worker, index, exception, the innermost frame of the user's."""
    here: str = ""
    """The cause on this machine; "" when the machine has nothing to do with it or the text is of another system."""
    prevented: str = ""
    """What stoker's loader does instead; "" when it has the same failure."""
    page: str = ""
    """Where the page of this failure is, in the documentation."""
    next: str = ""
    """The command to go on with."""
    procedure: tuple[str, ...] = ()
    whole: bool = True
    """False when the text was so long that only lines near trouble were looked at."""

    @property
    def code(self) -> str | None:
        """Return the code of the failure; None when it was not recognised."""
        return self.finding.code if self.finding else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as ``stoker explain --json`` prints them; docs/json.md has the fields."""
        found = self.finding
        told = (
            [{**finding_form(found), "title": self.title or None, "prevented": self.prevented or None}]
            if found
            else []
        )
        return {
            "format": "stoker-explanation",
            "version": 1,
            "recognised": found is not None,
            "code": self.code,
            "findings": told,
            "line": self.line_number or None,
            "clues": dict(self.clues),
            "here": self.here or None,
            "also": [
                {"code": each.code, "title": each.title, "line": each.line_number, "reason": each.reason}
                for each in self.also
            ],
            "page": self.page or None,
            "next": self.next,
            "procedure": list(self.procedure),
            "whole": self.whole,
        }

    def __str__(self) -> str:
        from stoker._tools.doctor.forms.explanation import plain

        return plain(self)

    def _repr_markdown_(self) -> str:
        from stoker._tools.doctor.forms.explanation import markdown

        return markdown(self)

    def _repr_html_(self) -> str:
        from stoker._tools.doctor.forms.explanation import html

        return html(self)


def explain(what: str | BaseException) -> Explanation:
    """Say what an error means, and what to do.

    Args:
        what: An exception, with its causes, contexts, groups and notes, or the text of a traceback or log.
    """
    if isinstance(what, BaseException):
        return explain_log(logs.of_text(_error_text(what)), _codes(what))
    if not isinstance(what, str):
        raise TypeError(f"explain takes an exception or a text, not {type(what).__name__}")
    return explain_log(logs.of_text(what))


def explain_log(log: logs.Log, codes: tuple[str, ...] = ()) -> Explanation:
    """The same for a text that was read elsewhere. ``codes`` are what exceptions of stoker's carry, the outermost first."""
    found = [FoundMark(code, NOTE_WEIGHT + 1, *_last_line(log)) for code in codes[:1]]
    found += [
        sign
        for sign in signs(log, {check.code: check.marks for check in catalogue()})
        if sign.code not in codes[:1]
    ]
    failed = any(sign.weight >= WARNING_WEIGHT for sign in found) or _FAILED.search(log.text) is not None
    if not found or (failed and found[0].weight < WARNING_WEIGHT):
        return Explanation(
            None,
            also=_also(found, None),
            clues=_clues(log, len(log.text)),
            next="stoker doctor --bisect TARGET",
            procedure=PROCEDURE,
            whole=log.whole,
        )
    return _explained(log, found[0], found[1:])


def _explained(log: logs.Log, sign: FoundMark, others: list[FoundMark]) -> Explanation:
    check = check_of(sign.code)
    told = _clues(log, sign.place)
    line = masked(sign.line)
    if check is None:  # written by another version of stoker
        advice = (
            f"This version of stoker does not know {sign.code}: stoker explain --list shows what it knows."
        )
        return Explanation(
            Finding(sign.code, "moderate", line, advice), clues=told, next="stoker explain --list"
        )
    finding = check.finding(
        line[:300],
        first_advice(check.sections["Fix"]),
        where=told.get("frame") or told.get("file"),
        numbers=dict(told),
    )
    return Explanation(
        finding,
        title=check.title,
        line_number=sign.line_number,
        also=_also(others, sign),
        clues=told,
        here="" if told.get("system") else here(check),
        prevented=check.prevented,
        page=page_of(check),
        next=f"stoker doctor TARGET --select {check.code}"
        if check.examine
        else f"stoker explain {check.code}",
        whole=log.whole,
    )


def _clues(log: logs.Log, place: int) -> dict[str, str]:
    return {name: masked(text) for name, text in clues.gather(log, place).items()}


def here(check: Check) -> str:
    """The cause of a failure on this machine, in a sentence; "" when there is nothing to say."""
    if check.here is None:
        return ""
    with contextlib.suppress(Exception):  # what the machine tells must not hide what the text tells
        return check.here(machine.gather())
    return ""


def page_of(check: Check) -> str:
    """Its page in the documentation."""
    return f"docs/checks/{check.code}.md"


def first_advice(text: str) -> str:
    """The first thing that a section says to do: a paragraph in one line, with the code that stands right below it, as Markdown."""
    match = _ADVICE.match(text)
    if match is None:
        return ""
    prose = " ".join((match["prose"] or "").split())
    return "\n".join(part for part in (prose, match["code"]) if part)


def _also(signs_found: list[FoundMark], main: FoundMark | None) -> tuple[OtherMatch, ...]:
    found = []
    for sign in signs_found[:_MOST_ALSO]:
        check = check_of(sign.code)
        if check is not None:
            found.append(OtherMatch(sign.code, check.title, sign.line_number, _reason(sign, main)))
    return tuple(found)


def _reason(sign: FoundMark, main: FoundMark | None) -> str:
    """Why this is not the answer."""
    if sign.weight < WARNING_WEIGHT:
        return "a warning: nothing failed there"
    if main is None or main.code.startswith(_ENDS):
        return "a weaker sign"
    if sign.code.startswith(_ENDS):
        return "a consequence, not the cause"
    return "comes later in the text" if sign.place > main.place else "a weaker sign"


def _last_line(log: logs.Log) -> tuple[int, int, str]:
    """Where an exception's own line stands: the last that is not indented and says what it is."""
    own = list(_OWN_LINE.finditer(log.text))
    place = own[-1].start() if own else 0
    return place, *log.at(place)


def _error_text(error: BaseException) -> str:
    """An exception as Python would print it: causes, contexts, groups and notes included. Never raises."""
    try:
        return "".join(traceback.format_exception(error))
    except Exception:
        with contextlib.suppress(Exception):
            return f"{type(error).__name__}: {error}"
        return type(error).__name__


def _codes(error: BaseException) -> tuple[str, ...]:
    """What exceptions of stoker's carry: of this one, then of those it came from."""
    found: list[str] = []
    seen: set[int] = set()
    queue: list[BaseException | None] = [error]
    while queue and len(seen) < sys.getrecursionlimit():
        each = queue.pop(0)
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, Coded):
            found.append(each.code)
        queue += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            queue += each.exceptions
    return tuple(found)
