"""What is said about samples that do not go together: the key, what differs, the dataset indices."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from stoker._runtime.worker.collate_errors import explain_collation

Point = namedtuple("Point", ["x", "y"])


def error_text(samples: Sequence[Any], indices: Sequence[Any] | None = (70, 71, 72, 73)) -> str:
    """What the user reads below torch's own words."""
    with pytest.raises(Exception) as caught:
        default_collate(list(samples))
    before = str(caught.value.args[0])
    explain_collation(caught.value, samples, indices)
    after = str(caught.value.args[0])
    assert after.startswith(before)
    return after[len(before) :]


@pytest.mark.parametrize(
    ("samples", "head", "rows"),
    [
        (
            [torch.zeros(2), torch.zeros(2), torch.zeros(3)],
            "sample: samples have different shapes",
            [
                "dataset index 70: tensor of shape (2,), torch.float32",
                "dataset index 72: tensor of shape (3,)",
            ],
        ),
        (
            [{"image": np.zeros((2, 2)), "id": 1}, {"image": np.zeros((2, 3)), "id": 2}],
            "sample['image']: samples have different shapes",
            ["dataset index 70: array of shape (2, 2), float64", "dataset index 71: array of shape (2, 3)"],
        ),
        (
            [1, None, 2],
            "sample: is None (set on_bad_sample='skip' or 'replace' to leave out such samples)",
            ["dataset index 71: NoneType None"],
        ),
        ([(1, 2), (3, None)], "sample[1]: is None", ["dataset index 71: NoneType None"]),
        (
            [{"a": 1}, {"b": 1}],
            "sample: key 'a' is missing",
            ["dataset index 71: dict {'b': 1}"],
        ),
        (
            [{"boxes": [1, 2]}, {"boxes": [1]}],
            "sample['boxes']: samples have different lengths",
            ["dataset index 70: list length 2, [1, 2]", "dataset index 71: list length 1, [1]"],
        ),
        (
            [Point(torch.zeros(1), 0), Point("far", 0)],
            "sample[0]: samples are of different types",
            ["dataset index 70: tensor of shape (1,)", "dataset index 71: str 'far'"],
        ),
        (
            [{"a": [{"b": torch.zeros(1)}]}, {"a": [{"b": torch.zeros(2)}]}],
            "sample['a'][0]['b']: samples have different shapes",
            ["dataset index 71"],
        ),
    ],
)
def test_the_odd_one_is_named(samples: Sequence[Any], head: str, rows: list[str]) -> None:
    text = error_text(samples)
    assert head in text.splitlines()
    for row in rows:
        assert row in text


def test_without_indices_rows_are_counted() -> None:
    assert "  row 1: NoneType None" in error_text([1, None], None).splitlines()


def test_few_of_many_are_shown() -> None:
    text = error_text([torch.zeros(1)] + [torch.zeros(2)] * 50, list(range(51)))
    assert text.count("dataset index") == 4


def test_a_long_value_is_cut() -> None:
    assert all(len(line) < 120 for line in error_text([1, "x" * 10_000]).splitlines())


def test_samples_that_go_together_are_not_blamed() -> None:
    error = RuntimeError("out of memory", 12)
    explain_collation(error, [torch.zeros(2), torch.zeros(2)], [0, 1])
    assert error.args == ("out of memory", 12)


def test_further_args_stay() -> None:
    error = RuntimeError("no", 12)
    explain_collation(error, [1, None], [0, 1])
    assert error.args[1:] == (12,)


def test_an_error_without_words_gets_some() -> None:
    error = RuntimeError()
    explain_collation(error, [1, None], [5, 6])
    assert str(error).startswith("sample: is None (set on_bad_sample=")
    assert str(error).endswith("\n  dataset index 6: NoneType None")


class Nasty:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.mark.parametrize("samples", [[], [1, Nasty()], [{1}, {2}], [iter(()), iter(())]])
def test_it_never_raises(samples: list[Any]) -> None:
    error = TypeError("what torch said")
    explain_collation(error, samples, [0, 1])
    assert str(error).startswith("what torch said")
