"""Hypothesis changes whole documents by their structure: it finds small inputs, and says which change it was."""

from __future__ import annotations

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz import mutation
from tests.fuzz.formats import registry

FORMATS = registry()
DOCUMENTS = {
    "record": 30, "run-folder": 20, "tuning": 30, "profile": 40, "state-shuffled": 20, "state-sampled": 20, "state-elastic": 20,
    "state-streamed": 20, "merged-trace": 30,
}  # fmt: skip
"""Examples by format. Reports are drawn by a library that keeps threads, so the campaigns read those."""

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=True)
    | st.text(max_size=8)
    | st.sampled_from(mutation.NUMBERS)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def changed(data: st.DataObject, document: Any) -> Any:
    """The document with another value, or none, at one place."""
    if not isinstance(document, dict | list) or not document:
        return data.draw(VALUES)
    keys = sorted(document) if isinstance(document, dict) else list(range(len(document)))
    key = data.draw(st.sampled_from(keys))
    if data.draw(st.booleans()):
        document[key] = changed(data, document[key])
    elif data.draw(st.booleans()):
        document[key] = data.draw(VALUES)
    else:
        del document[key]
    return document


@pytest.mark.parametrize("name", DOCUMENTS)
def test_any_change_gives_an_answer_or_a_documented_error(name: str) -> None:
    kind = FORMATS[name]
    wholes = [
        json.loads(each.splitlines()[0] if name in ("record", "run-folder") else each) for each in kind.seeds
    ]

    @settings(max_examples=DOCUMENTS[name], derandomize=True, database=None)
    @given(st.data())
    def read(data: st.DataObject) -> None:
        document = copy.deepcopy(data.draw(st.sampled_from(wholes)))
        for _ in range(data.draw(st.integers(1, 3))):
            document = changed(data, document)
        with tempfile.TemporaryDirectory() as folder:
            try:
                kind.read(json.dumps(document).encode(), Path(folder))
            except kind.errors as error:
                said = str(error)
            else:
                said = "it was read"
        assert said.strip(), "an error without a message"

    read()
