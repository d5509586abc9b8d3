"""The pictures of README and docs: drawn from the figures that are kept beside them."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from stoker._tools.render.theme import COLOURS

_DOCS = Path(__file__).resolve().parents[2] / "docs"
_MOST_BYTES = 100_000


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pictures", _DOCS / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_picture_is_there_for_both_grounds_and_says_what_was_measured(pictures: ModuleType) -> None:
    figures = json.loads(pictures.FIGURES.read_text(encoding="utf-8"))
    machine = pictures.caption(figures)
    assert figures["machine"]["versions"]["torch"] in machine
    for name in pictures.specs(figures):
        for ground in pictures.THEMES:
            text = (pictures.FOLDER / f"{name}-{ground}.svg").read_text(encoding="utf-8")
            assert len(text.encode()) < _MOST_BYTES
            assert machine in " ".join(re.findall(r">([^<>]+)</t", text)), (
                f"{name} is of another run: make pictures"
            )
            assert "var(--" not in text
            ours, other = COLOURS["torch"] if ground == "light" else COLOURS["torch"][::-1]
            assert ours in text
            assert other not in text


def test_a_record_that_lacks_an_act_is_refused(pictures: ModuleType) -> None:
    figures = json.loads(pictures.FIGURES.read_text(encoding="utf-8"))
    figures["acts"].pop("killed")
    with pytest.raises(SystemExit, match="killed"):
        pictures.keep(figures)
