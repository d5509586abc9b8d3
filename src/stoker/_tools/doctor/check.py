"""Defines a check: one file, one code, one page.

A check's module lies in ``checks``, is named after its code and what it finds (``stk201_small_shm``), and ends with
``CHECK = Check(__name__, __doc__, ...)``. Its docstring is its page: a first line that says what is wrong, then the four sections
of SECTIONS, in Markdown. ``examine`` is told facts by the names of its parameters (``facts.FACTS`` has them) and yields
findings: none when all is well. A parameter whose default is None is told None where its fact is missing; a check that has no
such default is skipped then. ``marks`` recognise what people see once it has happened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from inspect import Parameter, cleandoc, signature
from typing import Any

from stoker._record.finding import SEVERITIES, Finding
from stoker._tools.doctor.facts.host.machine import MachineFacts

SECTIONS = ("What it finds", "Why it hurts", "Example", "Fix")
_MODULE = re.compile(r"(?:.*\.)?(stk\d{3})_(\w+)")


@dataclass(frozen=True, slots=True)
class Mark:
    """What a failure looks like in a log: a regular expression, and what must or must not stand near it.

    ``pattern`` is searched in the text as ``logs`` makes it plain, with MULTILINE; a space in it matches a line's end too
    (``recognition``). All of ``also`` must be found near it (some thousand characters) and none of ``never``. Of the marks that
    match, the one of the greatest ``weight`` names the failure; the others are what else was seen. Below 5 it is a warning's.
    """

    pattern: str
    also: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    weight: int = 10


@dataclass(frozen=True)
class Check:
    """One thing that can be wrong. Made once, at the end of its module."""

    module: str
    page: str | None
    severity: str
    """How bad it can get; a finding may be milder."""
    prevented: str = ""
    """What stoker's loader does, where torch's has this failure; "" when both have it."""
    examine: Callable[..., Iterable[Finding]] | None = None
    """None: this can only be recognised afterwards."""
    marks: tuple[Mark, ...] = ()
    here: Callable[[MachineFacts], str] | None = None
    """The cause on this machine, in one sentence with its numbers; "" when the machine has nothing to do with it."""
    rows: tuple[int, ...] = field(default=())
    """Lines of the list of known failures that this is about."""

    def __post_init__(self) -> None:
        if not _MODULE.fullmatch(self.module):
            raise ValueError(f"{self.module}: a check's module is named like stk201_small_shm")
        if self.severity not in SEVERITIES:
            raise ValueError(f"{self.code}: no such severity: {self.severity!r}")
        missing = [name for name in SECTIONS if not self.sections.get(name)]
        if missing or not self.title:
            raise ValueError(f"{self.code}: its docstring has no {', '.join(missing) or 'title'}")

    @property
    def code(self) -> str:
        """ "STK201"."""
        return self._named[0].upper()

    @property
    def name(self) -> str:
        """ "small-shm"."""
        return self._named[1].replace("_", "-")

    @property
    def _named(self) -> tuple[str, str]:
        match = _MODULE.fullmatch(self.module)
        assert match is not None
        return match[1], match[2]

    @cached_property
    def title(self) -> str:
        """The first line of its page, without the full stop."""
        return cleandoc(self.page or "").partition("\n")[0].rstrip(".")

    @cached_property
    def sections(self) -> dict[str, str]:
        """Its page by heading."""
        found: dict[str, list[str]] = {}
        lines = cleandoc(self.page or "").splitlines()
        heading = ""
        for line, below in zip(lines, [*lines[1:], ""], strict=False):
            if line in SECTIONS and below and set(below) == {"-"}:
                heading = line
                found[heading] = []
            elif heading and not (line and set(line) == {"-"} and not found[heading]):
                found[heading].append(line)
        return {name: "\n".join(body).strip() for name, body in found.items()}

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """The facts without which ``examine`` cannot be made, by name."""
        return tuple(name for name, each in self._parameters if each.default is Parameter.empty)

    @cached_property
    def welcomes(self) -> tuple[str, ...]:
        """The facts that it uses where they are known, by name."""
        return tuple(name for name, each in self._parameters if each.default is not Parameter.empty)

    @property
    def _parameters(self) -> tuple[tuple[str, Parameter], ...]:
        return tuple(signature(self.examine).parameters.items()) if self.examine else ()

    def finding(self, evidence: str, advice: str, *, severity: str | None = None, **more: Any) -> Finding:
        """A finding of this check. ``more``: edit, gain, where, numbers."""
        return Finding(self.code, severity or self.severity, evidence, advice, **more)
