"""A diagnosis as JSON. The format is versioned: other tools go by it."""

from __future__ import annotations

import json
from typing import Any

from stoker._host.secrets import masked, masked_values
from stoker._record.finding import Finding
from stoker._tools.doctor.catalogue import check_of
from stoker._tools.doctor.diagnosis import Diagnosis
from stoker._tools.doctor.facts import Missing
from stoker._tools.doctor.location import location
from stoker._tools.render import json_form

VERSION = 1
_LONGEST_TEXT = 400
_MOST_ITEMS = 40


def render(diagnosis: Diagnosis) -> str:
    """One JSON document, without a newline at its end."""
    return json.dumps(as_json(diagnosis), indent=2)


def as_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """Plain values. Facts are shortened: long texts and lists are cut, which "…" shows."""
    return {
        "format": "stoker-diagnosis",
        "version": VERSION,
        "subject": diagnosis.subject,
        "worst": diagnosis.worst,
        "interrupted": diagnosis.interrupted,
        "findings": [_finding(each, diagnosis) for each in diagnosis.findings],
        "skipped": [{"code": each.code, "reason": each.reason} for each in diagnosis.skipped],
        "passed": list(diagnosis.passed),
        "facts": {name: plain(value) for name, value in diagnosis.facts.items()},
    }


def _finding(finding: Finding, diagnosis: Diagnosis) -> dict[str, Any]:
    check = check_of(finding.code)
    place = location(finding, diagnosis.facts)
    return {
        **json_form.finding_form(finding),
        "numbers": plain(dict(finding.numbers)),
        "name": check.name if check else None,
        "title": check.title if check else None,
        "prevented": (check.prevented or None) if check else None,
        "file": place.relative if place else None,
        "line": place.line if place else None,
    }


def plain(value: Any) -> Any:
    """What JSON can say of a fact, without the secrets in its texts."""
    if isinstance(value, Missing):
        return {"missing": masked(value.reason)}
    whole = masked_values(json_form.plain(value, most_items=_MOST_ITEMS))  # half a key is not known for one
    return json_form.plain(whole, longest_text=_LONGEST_TEXT)
