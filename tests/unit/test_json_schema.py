"""Every document that stoker writes as JSON is as docs/findings.schema.json says, and docs/json.md names it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import stoker
from tests.unit.documents import documents

jsonschema = pytest.importorskip("jsonschema")

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = json.loads((DOCS / "findings.schema.json").read_text())
FORMATS = set(SCHEMA["properties"]["format"]["enum"])
FILES = {"stoker-profile", "stoker-receipt"}
"""Formats of files that stoker alone reads."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return documents(tmp_path_factory.mktemp("documents"))


def test_every_document_is_as_the_schema_says(written: list[Any]) -> None:
    checker = jsonschema.Draft202012Validator(SCHEMA)
    checker.check_schema(SCHEMA)
    for each in written:
        assert [f"{each['format']}: {error.message}" for error in checker.iter_errors(each)] == []
    # tests/unit/test_advise.py has the advice
    assert {each["format"] for each in written} == FORMATS - {"stoker-advice"}


def test_a_document_that_lacks_something_is_refused(written: list[Any]) -> None:
    checker = jsonschema.Draft202012Validator(SCHEMA)
    for each in written:
        for name in SCHEMA["$defs"][each["format"]]["required"]:
            assert not checker.is_valid({key: value for key, value in each.items() if key != name}), name
        assert not checker.is_valid({**each, "version": 99})
    assert not checker.is_valid({"format": "stoker-nothing", "version": 1})


def test_every_format_has_a_definition_and_a_line_in_the_guide() -> None:
    root = Path(stoker.__file__).parent
    pattern = re.compile(r"""(?:FORMAT[^\n=]*= |"format": )"(stoker-[a-z-]+)\"""")
    named = {name for path in root.rglob("*.py") for name in pattern.findall(path.read_text())}
    assert named - FILES == FORMATS & (named | {"stoker-advice"})
    assert set(SCHEMA["$defs"]) == FORMATS | {"finding"}
    guide = (DOCS / "json.md").read_text()
    rows = dict(re.findall(r"^\| `(stoker-[a-z-]+)`, version (\d+) \|", guide, re.MULTILINE))
    assert {name: int(version) for name, version in rows.items()} == {
        each: SCHEMA["$defs"][each]["properties"]["version"]["const"] for each in FORMATS
    }
