"""A diagnosis as commands of GitHub's workflows, which become annotations of a pull request."""

from __future__ import annotations

from stoker._host.secrets import cleaned
from stoker._record.finding import Finding
from stoker._tools.doctor.diagnosis import Diagnosis
from stoker._tools.doctor.forms.sarif import message
from stoker._tools.doctor.forms.screen import headline, title_of
from stoker._tools.doctor.location import location

_COMMANDS = {"none": "notice", "low": "notice", "moderate": "warning", "high": "error"}


def render(diagnosis: Diagnosis) -> str:
    """One line per finding, and one that says what was examined."""
    said = f"::notice title=stoker doctor::{_message(f'{diagnosis.subject}: {headline(diagnosis)}')}"
    return "\n".join([*(_annotation(each, diagnosis) for each in diagnosis.findings), said])


def _annotation(finding: Finding, diagnosis: Diagnosis) -> str:
    place = location(finding, diagnosis.facts)
    properties = {"title": f"{finding.code} {title_of(finding)}"}
    if place is not None:
        properties = {"file": place.relative, "line": str(place.line), **properties}
    told = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    where = f"{finding.where}: " if finding.where else ""
    return f"::{_COMMANDS[finding.severity]} {told}::{_message(where + message(finding))}"


def _message(text: str) -> str:
    """% first: it is what the others are escaped with."""
    return cleaned(text).replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
