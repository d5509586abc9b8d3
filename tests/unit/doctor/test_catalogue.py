"""Every check is whole: its name, its page, the facts it asks for, its marks; and checks can be found and chosen."""

from __future__ import annotations

import re

import pytest

from stoker._record.finding import SEVERITIES
from stoker._tools.doctor.catalogue import catalogue, check_of, selected
from stoker._tools.doctor.check import SECTIONS, Check
from stoker._tools.doctor.facts import FACTS

PAGE = """Something is wrong.

What it finds
-------------
It.

Why it hurts
------------
It does.

Example
-------
This.

Fix
---
That.
"""


def test_codes_and_names_are_unique() -> None:
    codes = [check.code for check in catalogue()]
    names = [check.name for check in catalogue()]
    assert codes == sorted(set(codes))
    assert len(names) == len(set(names))


@pytest.mark.parametrize("check", catalogue(), ids=lambda check: check.code)
def test_a_check_is_whole(check: Check) -> None:
    assert set(check.needs) | set(check.welcomes) <= FACTS.keys()
    assert check.examine is not None or check.marks, "nothing would ever find it"
    assert all(len(check.sections[name]) > 20 for name in SECTIONS)
    assert len(check.title) <= 100
    assert check.severity in SEVERITIES[1:]
    for mark in check.marks:
        for pattern in (mark.pattern, *mark.also, *mark.never):
            assert re.compile(pattern, re.MULTILINE).search("") is None, "it matches anything"
    assert all(1 <= row <= 51 for row in check.rows)


def test_every_known_failure_has_a_check() -> None:
    """The catalogue of failures has 51 rows; the pages say which of them they are about."""
    assert {row for check in catalogue() for row in check.rows} == set(range(1, 52))


def test_found_by_code_and_by_name() -> None:
    for word in ("STK201", "stk201", "small-shm", "small_shm"):
        found = check_of(word)
        assert found is not None
        assert found.code == "STK201"
    assert check_of("STK2") is None
    assert check_of("") is None


def test_chosen_by_the_beginnings_of_codes() -> None:
    assert {check.code[:4] for check in selected(["STK2"])} == {"STK2"}
    assert [check.code for check in selected(["small-shm"])] == ["STK201"]
    assert "STK201" not in {check.code for check in selected(["STK2"], ["STK201"])}
    assert selected() == catalogue()
    for nothing in ("STK199", "", "no-such-thing"):
        with pytest.raises(ValueError, match="no check has"):
            selected([nothing])


@pytest.mark.parametrize(
    ("module", "page", "severity", "told"),
    [
        ("stk201", PAGE, "high", "is named like"),
        ("stk201_x", PAGE, "awful", "no such severity"),
        ("stk201_x", PAGE.replace("Fix\n---\nThat.\n", ""), "high", "has no Fix"),
        ("stk201_x", "", "high", "has no"),
    ],
)
def test_a_check_that_is_not_whole_is_refused(module: str, page: str, severity: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Check(module, page, severity=severity)


def test_a_page_is_read_by_its_headings() -> None:
    check = Check("stk999_odd", PAGE.replace("This.", "```\nFix\n```\n---"), severity="low")
    assert (check.code, check.name, check.title) == ("STK999", "odd", "Something is wrong")
    assert check.sections["Example"] == "```\nFix\n```\n---"
    assert check.sections["Fix"] == "That."
