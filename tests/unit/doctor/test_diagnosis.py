"""How checks are told facts: those they need, and those they only welcome."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from stoker._record.finding import Finding
from stoker._tools.doctor.check import SECTIONS, Check
from stoker._tools.doctor.diagnosis import diagnose
from stoker._tools.doctor.facts import Missing

_PAGE = "Something is wrong.\n\n" + "\n\n".join(f"{name}\n{'-' * len(name)}\nText." for name in SECTIONS)


def _examine(machine: Any, samples: Any = None) -> Iterator[Finding]:
    known = "nothing" if samples is None else samples.text
    yield CHECK.finding(f"{machine.text} and {known}", "Do something.")


CHECK = Check("stk999_sample", _PAGE, severity="low", examine=_examine)
MACHINE = SimpleNamespace(text="machine")


def test_needs_and_welcomes() -> None:
    assert (CHECK.needs, CHECK.welcomes) == (("machine",), ("samples",))


@pytest.mark.parametrize(
    ("more", "evidence"),
    [
        ({}, "machine and nothing"),
        ({"samples": Missing("no target")}, "machine and nothing"),
        ({"samples": SimpleNamespace(text="samples")}, "machine and samples"),
    ],
)
def test_a_fact_that_is_only_welcome_may_be_missing(more: dict[str, Any], evidence: str) -> None:
    diagnosis = diagnose([CHECK], {"machine": MACHINE, **more})
    assert [each.evidence for each in diagnosis.findings] == [evidence]
    assert not diagnosis.skipped


def test_what_is_true_of_two_loaders_alike_is_told_once() -> None:
    def twice(machine: Any) -> Iterator[Finding]:
        yield from (CHECK.finding(word, "Do something.") for word in ("same", "same", "other"))

    told = diagnose([replace(CHECK, examine=twice)], {"machine": MACHINE}).findings
    assert [each.evidence for each in told] == ["same", "other"]


def test_a_fact_that_is_needed_may_not() -> None:
    diagnosis = diagnose([CHECK], {"machine": Missing("nobody looked"), "samples": MACHINE})
    assert [(each.code, each.reason) for each in diagnosis.skipped] == [("STK999", "nobody looked")]
