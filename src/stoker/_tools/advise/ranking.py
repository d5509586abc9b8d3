"""Collects the edits of all tools and ranks them by gain: at most five, no two about one argument of one loader. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from stoker._record.finding import SEVERITIES, Edit, Finding
from stoker._tools.doctor.diagnosis import Diagnosis
from stoker._tools.doctor.facts.randomness import RandomnessFacts
from stoker._tools.report.verdict.verdict import Verdict

MOST_EDITS = 5
_LEAST_SWITCH = 0.10
"""Share of a step's time that another loader has to be able to save."""
_BOUND = 0.5
"""A gain that is only a bound counts half: it is rarely reached."""


@dataclass(frozen=True, slots=True)
class AdvisedEdit:
    """One edit. ``share`` is the share of a step's time that it saves, None if unknown."""

    code: str
    source: str
    """ "profile" or "doctor"."""
    severity: str
    edit: Edit
    evidence: str
    advice: str
    share: float | None
    at_most: bool
    site: str | None
    """Where the loader is made."""

    @property
    def gain(self) -> str:
        """Return the gain in words."""
        if self.share is None:
            return "gain not known"
        return f"{'at most ' if self.at_most else 'about '}−{self.share:.0%}"


def ranked(verdict: Verdict, diagnoses: Iterable[Diagnosis]) -> tuple[AdvisedEdit, ...]:
    """The best first. Findings that break a run come before gains; those without a known gain come last."""
    found = [
        _advised(each, "profile", loader.site)
        for loader in verdict.loaders
        for each in loader.findings
        # Another loader is no edit for its own sake: only where what it could save is known, and worth a change.
        if each.edit is not None and (each.code != "stoker-loader" or _saves(each) >= _LEAST_SWITCH)
    ]
    diagnoses = tuple(diagnoses)
    found = [proved for each in found if (proved := _proved(each, diagnoses)) is not None]
    for diagnosis in diagnoses:
        site = getattr(getattr(diagnosis.facts.get("target"), "loader", None), "site", None)
        found += [
            _advised(each, "doctor", site)
            for each in diagnosis.findings
            if each.edit is not None and each.edit.kind != "shown" and each.severity in ("moderate", "high")
        ]
    kept: dict[tuple[str | None, str], AdvisedEdit] = {}
    for each in sorted(found, key=_place):
        kept.setdefault((each.site, each.edit.after.partition("=")[0]), each)
    return tuple(kept.values())[:MOST_EDITS]


def _saves(finding: Finding) -> float:
    return 0.0 if finding.gain is None else finding.gain.share or 0.0


def _proved(each: AdvisedEdit, diagnoses: Sequence[Diagnosis]) -> AdvisedEdit | None:
    """Keep an edit that caches whole samples where they are the same each time. Where nobody looked, it is only shown."""
    if each.edit.kind != "cache":
        return each
    for diagnosis in diagnoses:
        loader = getattr(diagnosis.facts.get("target"), "loader", None)
        randomness = diagnosis.facts.get("randomness")
        if isinstance(randomness, RandomnessFacts) and getattr(loader, "site", None) == each.site:
            return None if randomness.varies or randomness.frozen else each
    return replace(each, edit=replace(each.edit, kind="shown"))


def _advised(finding: Finding, source: str, site: str | None) -> AdvisedEdit:
    assert finding.edit is not None
    gain = finding.gain
    return AdvisedEdit(
        finding.code,
        source,
        finding.severity,
        finding.edit,
        finding.evidence,
        finding.advice,
        None if gain is None else gain.share,
        gain is not None and gain.at_most,
        finding.edit.site or site,
    )


def _place(each: AdvisedEdit) -> tuple[bool, float, int]:
    breaks = each.source == "doctor" and each.severity == "high"
    expected = (each.share or 0.0) * (_BOUND if each.at_most else 1.0)
    return not breaks, -expected, -SEVERITIES.index(each.severity)
