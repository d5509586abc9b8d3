"""Advice as plain values for JSON (docs/json.md): format ``stoker-advice``."""

from __future__ import annotations

from typing import Any

from stoker._record.finding import Edit
from stoker._tools.advise.advice import Advice
from stoker._tools.advise.ranking import AdvisedEdit
from stoker._tools.doctor.forms import data
from stoker._tools.render.json_form import finding_form

VERSION = 1


def as_json(advice: Advice) -> dict[str, Any]:
    """The whole document."""
    return {
        "format": "stoker-advice",
        "version": VERSION,
        "script": advice.command.script,
        "exit": advice.exit,
        "stopped": advice.stopped,
        "interrupted": advice.interrupted,
        "verdict": advice.verdict.headline,
        "hang": None if advice.hang is None else _hang(advice),
        "examined": list(advice.examined),
        "findings": [
            {**each, "subject": one.subject}
            for one in advice.diagnoses
            for each in data.as_json(one)["findings"]
        ],
        "edits": [_edit(each) for each in advice.edits],
        "further": [finding_form(each) for each in advice.further],
        "refused": [
            {"code": each.code, "edit": str(each.edit), "reason": each.reason} for each in advice.refused
        ],
        "patch": patch_of(advice),
        "forecast": [
            {
                "subject": each.subject,
                "text": each.text,
                "change": each.change,
                "interval_ns": each.interval_ns,
            }
            for each in advice.forecast
        ],
        "notes": [*advice.verdict.notes, *advice.notes],
    }


def patch_of(advice: Advice) -> str:
    """All edits that can be made, as one patch; "" without any."""
    return b"".join(each.diff() for each in advice.patches).decode("utf-8", "replace")


def _edit(each: AdvisedEdit) -> dict[str, Any]:
    edit: Edit = each.edit
    return {
        "code": each.code,
        "source": each.source,
        "severity": each.severity,
        "before": edit.before,
        "after": edit.after,
        "site": each.site,
        "gain": each.share,
        "at_most": each.at_most,
        "evidence": each.evidence,
        "advice": each.advice,
    }


def _hang(advice: Advice) -> dict[str, Any]:
    assert advice.hang is not None
    return {
        "loader": advice.hang.loader,
        "waited_ns": advice.hang.waited_ns,
        "usual_ns": advice.hang.usual_ns,
        "place": advice.hang.place,
    }
