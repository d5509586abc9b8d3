"""The Python of README and docs runs as it is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import warm
from tests.docs.blocks import blocks_of, pages
from tests.docs.guides.guide import guides
from tests.docs.unrun import PYTHON

PLAY = str(Path(__file__).with_name("play.py"))
PAGES = [page for page in pages() if any(block.language == "python" for block in blocks_of(page))]
BOUND_S = 60
"""It only bounds a failure."""


@pytest.mark.parametrize("page", PAGES)
def test_the_page_is_a_program_that_runs(page: str, tmp_path: Path) -> None:
    done = warm.run([PLAY, page], timeout=BOUND_S, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_guides_are_of_pages() -> None:
    assert guides().keys() <= set(PAGES)


def test_what_is_not_run_is_there_and_has_a_reason() -> None:
    there = {
        (page, block.first_line) for page in PAGES for block in blocks_of(page) if block.language == "python"
    }
    assert [each for each in PYTHON if each[:2] not in there or not each.reason] == []
    assert len({each[:2] for each in PYTHON}) == len(PYTHON)
