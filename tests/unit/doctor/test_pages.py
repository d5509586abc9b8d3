"""The pages of the checks in docs/checks, and what becomes of marks in them."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from stoker._tools.doctor.catalogue import catalogue
from stoker._tools.doctor.check import SECTIONS

DOCS = Path(__file__).parents[3] / "docs"
pages = SimpleNamespace(**runpy.run_path(str(DOCS / "check_pages.py")))


def test_pages_are_up_to_date() -> None:
    assert pages.stale(DOCS / "checks") == [], "make docs writes them"


@pytest.mark.parametrize("check", catalogue(), ids=lambda check: check.code)
def test_a_page_has_the_fixed_headings(check) -> None:
    text = pages.page(check)
    headings = re.findall(r"^## (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    assert headings[:4] == list(SECTIONS)
    assert headings[4:] in ([], ["What people see"])
    assert text.startswith(f"# {check.code} ")
    assert text.count("```") % 2 == 0
    assert f"| severity | {check.severity}, at worst |" in text


def test_the_index_links_to_every_page() -> None:
    found = re.findall(r"\[(STK\d{3})\]\((STK\d{3})\.md\)", pages.pages()["README.md"])
    assert found == [(each.code, each.code) for each in catalogue()]


def test_pages_are_written_checked_and_removed(tmp_path, capsys) -> None:
    assert pages.main(["--check", str(tmp_path)]) == 1
    assert "not up to date" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    assert pages.main([str(tmp_path)]) == 0
    assert pages.main(["--check", str(tmp_path)]) == 0
    (tmp_path / "STK000.md").write_text("gone")
    (tmp_path / "STK201.md").write_text("old")
    assert pages.stale(tmp_path) == ["STK000.md", "STK201.md"]
    assert pages.write(tmp_path) == ["STK000.md", "STK201.md"]
    assert pages.stale(tmp_path) == []


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"worker \(pid\(?s?\)? ?[\d, ]+\) exited", "worker (pidN) exited"),
        (r"(?:unable to (?:write|read)|x)[^\n]{0,400}No space", "unable to write…No space"),
        (r"^\s*can't (?i:pickle) <\w+>(?!z)$", "can't pickle <…>"),
        (r"after [\d.]+ s(?:econds?)?\b", "after N s"),
        (r"a.{3}b+[xy]", "a…bx"),
    ],
)
def test_a_mark_is_told_in_words(pattern, text) -> None:
    assert pages.sample(pattern) == text
    assert len(pages.sample("a" * 500)) <= 110


def test_the_document_names_every_option_and_form() -> None:
    from stoker.cli.doctor import command

    text = (DOCS / "doctor.md").read_text()
    for each in command.params:
        for name in each.opts if each.param_type_name == "option" else ():
            assert f"`{name}" in text or f" {name} " in text, name
