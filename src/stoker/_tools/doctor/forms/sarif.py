"""A diagnosis as SARIF 2.1.0, which code hosts show beside the lines it is about."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from urllib.parse import quote

from stoker import __version__
from stoker._record.finding import Finding
from stoker._tools.doctor.catalogue import catalogue
from stoker._tools.doctor.check import Check
from stoker._tools.doctor.diagnosis import Diagnosis
from stoker._tools.doctor.forms.data import plain
from stoker._tools.doctor.location import Location, location

LEVELS = {"none": "note", "low": "note", "moderate": "warning", "high": "error"}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render(diagnosis: Diagnosis) -> str:
    """One SARIF document, without a newline at its end."""
    return json.dumps(as_sarif(diagnosis), indent=2)


def as_sarif(diagnosis: Diagnosis) -> dict[str, Any]:
    """One run. All checks are its rules; skipped ones are told as notifications of the tool."""
    rules = [_rule(each) for each in catalogue()]
    places = {rule["id"]: place for place, rule in enumerate(rules)}
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "stoker doctor", "version": __version__, "rules": rules}},
                "columnKind": "unicodeCodePoints",
                "invocations": [_invocation(diagnosis)],
                "results": [_result(each, diagnosis, places) for each in diagnosis.findings],
            }
        ],
    }


def _rule(check: Check) -> dict[str, Any]:
    return {
        "id": check.code,
        "name": "".join(word.capitalize() for word in check.name.split("-")),
        "shortDescription": {"text": check.title},
        "fullDescription": {"text": check.sections["What it finds"]},
        "help": {
            "text": check.sections["Fix"],
            "markdown": "\n\n".join(f"## {name}\n\n{body}" for name, body in check.sections.items()),
        },
        "defaultConfiguration": {"level": LEVELS[check.severity]},
        "properties": {"severity": check.severity, "tags": ["data-loading"]},
    }


def _invocation(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "executionSuccessful": not diagnosis.interrupted,
        "toolExecutionNotifications": [
            {"level": "note", "message": {"text": f"{each.code} skipped: {each.reason}"}}
            for each in diagnosis.skipped
        ],
    }


def _result(finding: Finding, diagnosis: Diagnosis, places: dict[str, int]) -> dict[str, Any]:
    place = location(finding, diagnosis.facts)
    identity = f"{finding.code} {finding.where or ''} {place.relative if place else ''}"
    found: dict[str, Any] = {
        "ruleId": finding.code,
        "level": LEVELS[finding.severity],
        "message": {"text": message(finding)},
        "locations": [_located(place, finding)] if place else [],
        "partialFingerprints": {"stokerDoctor/v1": hashlib.sha256(identity.encode()).hexdigest()[:32]},
        "properties": {"severity": finding.severity, "numbers": plain(dict(finding.numbers))},
    }
    if finding.code in places:
        found["ruleIndex"] = places[finding.code]
    return found


def _located(place: Location, finding: Finding) -> dict[str, Any]:
    uri = place.relative
    artifact = {"uri": quote(uri) if not uri.startswith("/") else f"file://{quote(uri)}"}
    where: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": artifact, "region": {"startLine": max(1, place.line)}}
    }
    if finding.where:
        where["logicalLocations"] = [{"fullyQualifiedName": finding.where}]
    return where


def message(finding: Finding) -> str:
    """Evidence, advice and edit, in sentences."""
    parts = [finding.evidence.rstrip(".") + ".", finding.advice.rstrip(".") + "."]
    if finding.edit is not None:
        parts.append(f"Change: {finding.edit}")
    return " ".join(parts)
