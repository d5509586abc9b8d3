"""Runs checks on facts. Pure: facts are gathered elsewhere (``facts``, ``probes``), and nothing here looks at the world."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stoker._host.secrets import masked
from stoker._record.finding import SEVERITIES, Finding
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.facts import Missing


@dataclass(frozen=True, slots=True)
class Skip:
    """A check that was not made, and why; secrets in the reason are hidden."""

    code: str
    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", masked(self.reason))


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the doctor found: the worst first. ``passed`` are codes of checks that were made and found nothing."""

    subject: str
    """What was examined, in words: "this machine", "data.py:train (a DataLoader of torch's)"."""
    findings: tuple[Finding, ...]
    skipped: tuple[Skip, ...]
    passed: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The facts by name, as they were gathered; a ``Missing`` where one was not."""
    interrupted: bool = False
    """Whether somebody stopped it: what is here was found until then."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "subject", masked(self.subject))

    @property
    def worst(self) -> str:
        """The highest severity among the findings, "none" without any."""
        return max((each.severity for each in self.findings), key=SEVERITIES.index, default="none")

    def __str__(self) -> str:
        from stoker._tools.doctor.forms import screen

        return screen.render(self)

    def __repr__(self) -> str:
        """One line: what it is made of is long."""
        from stoker._tools.doctor.forms import screen

        return f"<Diagnosis of {self.subject}: {screen.headline(self)}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from stoker._tools.doctor.forms import html

        return html.render(self)

    def _repr_markdown_(self) -> str:
        from stoker._tools.doctor.forms import markdown

        return markdown.render(self)


def diagnose(
    checks: Iterable[Check], facts: Mapping[str, Any], *, subject: str = "this machine"
) -> Diagnosis:
    """Every check, told the facts it asks for. One that needs a missing fact is skipped, with that fact's reason;
    where it only welcomes it, its default stands.

    A check that raises is a defect of ours and must not take the others with it: it is skipped, and says so.
    """
    findings: list[Finding] = []
    skipped: list[Skip] = []
    passed: list[str] = []
    for check in checks:
        if check.examine is None:
            continue
        told = {name: facts.get(name, Missing("was not gathered")) for name in check.needs}
        missing = [value for value in told.values() if isinstance(value, Missing)]
        if missing:
            skipped.append(Skip(check.code, missing[0].reason))
            continue
        told |= {
            name: facts[name] for name in check.welcomes if not isinstance(facts.get(name), Missing | None)
        }
        try:
            found = list(check.examine(**told))
        except Exception as error:
            skipped.append(Skip(check.code, f"the check itself failed: {type(error).__name__}: {error}"))
            continue
        # Two loaders that are alike give the same finding twice.
        findings += [each for at, each in enumerate(found) if each not in found[:at]]
        if not found:
            passed.append(check.code)
    findings.sort(key=lambda each: (-SEVERITIES.index(each.severity), each.code))
    return Diagnosis(subject, tuple(findings), tuple(skipped), tuple(passed), dict(facts))
