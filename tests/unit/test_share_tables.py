"""pandas frames and Arrow tables over a segment: equal, read-only, and without a copy on their way to workers."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import stoker
from stoker._pickling.segment import find
from stoker._pickling.spec_pickle import SpecPickler
from stoker._sharing.containers import frames
from tests.unit.test_share_walk import Files

ROWS = 12_000


def lies_in_a_segment(table: Any) -> bool:
    """Whether all memory that would travel beside the pickle lies in a segment, and none of it within the pickle."""
    buffers: list[Any] = []
    file = io.BytesIO()
    SpecPickler(file, protocol=5, buffer_callback=buffers.append).dump(table)
    arrays = [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers if buffer.raw().nbytes]
    return bool(arrays) and file.tell() < 8192 and all(find(each.ctypes.data, each.nbytes) for each in arrays)


def objects(values: list[Any]) -> Any:
    return pd.Series(values, dtype=object)


def frame() -> Any:
    return pd.DataFrame({
        "whole": np.arange(ROWS), "half": np.arange(ROWS) / 2, "even": np.arange(ROWS) % 2 == 0,
        "day": pd.date_range("2020", periods=ROWS, freq="s"),
        "zoned": pd.date_range("2020", periods=ROWS, freq="s", tz="UTC"),
        "name": pd.Series([f"name {row}" for row in range(ROWS)], dtype="str"),
        "kind": pd.Categorical([f"c{row % 5}" for row in range(ROWS)]),
        "maybe": pd.array([1, None] * (ROWS // 2), dtype="Int64"),
    })  # fmt: skip


def test_a_frame_lies_in_a_segment_and_is_equal() -> None:
    given = frame()
    shared = stoker.share(given)
    assert shared is not given
    pd.testing.assert_frame_equal(shared, frame())
    pd.testing.assert_frame_equal(given, frame())
    assert lies_in_a_segment(shared)
    assert not lies_in_a_segment(given)
    with pytest.raises(ValueError, match="read-only"):
        shared.loc[3, "whole"] = 1
    private = shared.copy()
    private.loc[3, "whole"] = 1
    assert shared.loc[3, "whole"] == 3


@pytest.mark.parametrize(
    "make",
    [
        lambda: frame()["half"],
        lambda: frame()["name"],
        lambda: frame()[["whole", "half"]].iloc[::2],
        lambda: frame().set_index(["whole", "name"]),
        lambda: pd.Index(np.arange(ROWS)),
        lambda: pd.Index([f"row {row}" for row in range(ROWS)]),
    ],
    ids=["series", "text", "every other row", "two indexes", "index", "text index"],
)
def test_series_indexes_and_parts_of_frames(make: Any) -> None:
    shared = stoker.share(make())
    assert shared.equals(make())
    assert type(shared) is type(make())
    assert lies_in_a_segment(shared)


def test_text_in_python_objects_becomes_arrow_text_when_it_stays_equal() -> None:
    text = [f"text {row}" for row in range(ROWS)]
    gaps = [np.nan if row % 3 == 0 else word for row, word in enumerate(text)]
    nones = [None if row % 3 == 0 else word for row, word in enumerate(text)]
    mixed = [row if row % 3 == 0 else word for row, word in enumerate(text)]
    given = pd.DataFrame(
        {"text": objects(text), "gaps": objects(gaps), "nones": objects(nones), "mixed": objects(mixed)}
    )
    given.index = pd.Index(text, dtype=object)
    shared = stoker.share(given)
    assert [str(dtype) for dtype in shared.dtypes] == ["str", "str", "object", "object"]
    assert shared["text"].tolist() == text
    assert shared["gaps"].dropna().tolist() == [word for word in gaps if isinstance(word, str)]
    assert shared["gaps"].isna().tolist() == given["gaps"].isna().tolist()
    assert shared["nones"].tolist() == nones
    assert shared["mixed"].tolist() == mixed
    assert shared.index.tolist() == text
    assert [str(dtype) for dtype in given.dtypes] == ["object"] * 4
    (entry,) = stoker.share(given, report=True).entries
    assert entry.reason == (
        "text of 'text', 'gaps', the index becomes pandas' str (Arrow); columns of Python objects stay as they are"
    )


def test_without_arrow_text_in_python_objects_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "find_spec", lambda name: None)
    text = objects([f"text {row}" for row in range(ROWS)])
    shared = stoker.share(pd.DataFrame({"text": text, "whole": np.arange(ROWS)}))
    assert str(shared["text"].dtype) == "object"
    assert shared["text"].tolist() == text.tolist()
    assert lies_in_a_segment(shared["whole"])


def test_text_that_arrow_cannot_hold_stays() -> None:
    odd = objects([f"\ud800{row}" for row in range(ROWS)])
    given = pd.DataFrame({"odd": odd, "whole": np.arange(ROWS)})
    shared = stoker.share(given)
    assert shared["odd"].tolist() == odd.tolist()
    assert lies_in_a_segment(shared["whole"])


@pytest.mark.parametrize("kept", [objects([object] * ROWS), objects([(row,) for row in range(ROWS)])])
def test_a_series_of_python_objects_is_left_alone(kept: Any) -> None:
    dataset = Files(kept=kept)
    stoker.share(dataset)
    assert dataset.kept is kept
    (entry,) = stoker.share(dataset, report=True).entries
    assert (entry.action, "Python objects" in entry.reason) == ("kept", True)


def table() -> Any:
    words = [f"x{row}" for row in range(ROWS)]
    return pa.table({
        "number": np.arange(ROWS), "text": words, "kind": pa.array([f"x{row % 4}" for row in range(ROWS)]).dictionary_encode(),
        "lists": [[row] * (row % 3) for row in range(ROWS)], "gaps": [None if row % 2 else row for row in range(ROWS)],
    }, metadata={"made": "here"})  # fmt: skip


@pytest.mark.parametrize(
    "make",
    [
        table,
        lambda: table().slice(100, 5000),
        lambda: pa.concat_tables([table(), table()]),
        lambda: table().to_batches()[0],
        lambda: table()["text"],
        lambda: table()["text"].chunk(0),
        lambda: pa.chunked_array([[1], [2, 3]]),
    ],
    ids=["table", "slice", "two chunks", "batch", "chunked", "array", "small"],
)
def test_arrow_tables_are_opened_without_a_copy(make: Any) -> None:
    given = make()
    shared = stoker.share(given)
    assert type(shared) is type(given)
    assert shared.equals(given)
    assert lies_in_a_segment(shared)
    assert stoker.share(shared) is shared
    if isinstance(given, pa.Table):
        assert shared.schema.equals(given.schema, check_metadata=True)


def test_empty_tables_are_nothing_to_share() -> None:
    empty = table().slice(0, 0)
    assert stoker.share(empty).equals(empty)


class Marked(pd.DataFrame):
    pass


def test_attributes_that_are_tables_and_those_that_stay() -> None:
    dataset = Files(frame=frame(), table=table(), marked=Marked(frame()), small=frame().head(3))
    marked, small = dataset.marked, dataset.small
    stoker.share(dataset)
    assert lies_in_a_segment(dataset.frame)
    assert lies_in_a_segment(dataset.table)
    assert dataset.marked is marked
    assert dataset.small is small
    reasons = {entry.path: entry.reason for entry in stoker.share(dataset, report=True).entries}
    assert reasons["dataset.frame"] == reasons["dataset.table"] == "already shared"
    assert "a Marked" in reasons["dataset.marked"]
