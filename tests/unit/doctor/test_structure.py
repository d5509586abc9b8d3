"""What is in a sample, what differs between two, and what lies behind the tensors of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from stoker._tools.doctor.facts.samples import Storage
from stoker._tools.doctor.instruments.structure import difference, leaves, storages
from stoker._tools.doctor.probes.samples import unsendable


def test_values_are_told_by_their_path() -> None:
    sample = {"image": torch.zeros(3, 4)[1:], "meta": [7, None, "abc"], "box": np.zeros((2, 2))[:1]}
    told = {leaf.path: leaf for leaf in leaves(sample)}
    assert list(told) == ["['image']", "['meta'][0]", "['meta'][1]", "['meta'][2]", "['box']"]
    image, box = told["['image']"], told["['box']"]
    assert (image.kind, image.dtype, image.shape) == ("tensor", "float32", (2, 4))
    assert (image.data_bytes, image.storage_bytes) == (32, 48)
    assert (box.kind, box.data_bytes, box.storage_bytes) == ("array", 16, 32)
    assert [told[f"['meta'][{at}]"].kind for at in range(3)] == ["int", "None", "str"]


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ((torch.zeros(3), 1), (torch.zeros(3), 2), None),
        ((torch.zeros(3),), (torch.zeros(4),), ("shape", "[0]", "(3,)", "(4,)")),
        ({"x": torch.zeros(3)}, {"x": torch.zeros(3).long()}, ("dtype", "['x']", "float32", "int64")),
        ({"x": [1, 2]}, {"x": [1, 2, 3]}, ("length", "['x']", "2", "3")),
        ({"x": 1, "y": 2}, {"x": 1}, ("keys", "", "'y', 'x'", "'x'")),
        ([1], [1.5], ("kind", "[0]", "int", "float")),
        ([None], ["a"], ("none", "[0]", "None", "str")),
        (torch.zeros(2), np.zeros(2), ("kind", "", "tensor", "array")),
        ("long text", "short", None),
    ],
)
def test_the_first_difference_is_told(first: Any, second: Any, found: Any) -> None:
    assert difference(first, second) == found


def test_storages_are_weighed_once_for_all_their_views() -> None:
    table = torch.zeros(100, 10)
    row: Storage
    (row,) = storages({"row": table[3], "own": torch.zeros(5)})
    assert (row.path, row.tensors, row.used_bytes, row.storage_bytes) == ("['row']", 1, 40, 4000)
    assert storages(list(table.split(10))) == ()


def test_what_cannot_be_sent_is_named() -> None:
    graph = torch.zeros(2, requires_grad=True) * 2
    assert unsendable([torch.zeros(3), {"a": "text"}, torch.zeros(1, requires_grad=True)]) == ()
    assert unsendable({"rows": (each for each in [1])}) == (
        "batch['rows'] (generator): cannot pickle 'generator' object",
    )
    (text,) = unsendable((1, graph))
    assert text.startswith("batch[1] (Tensor): refusing to serialize non-leaf tensor")
