"""Hypothesis builds batches of any structure: they arrive equal, and views of one storage alias or travel alone."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from stoker.testing import heap_codec
from tests.unit.test_codec import Pair

DTYPE = st.sampled_from(
    [torch.float32, torch.uint8, torch.bfloat16, torch.int64, torch.bool, torch.complex64]
)


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    tensor = (torch.arange(math.prod(shape)) % 7).view(shape).to(draw(DTYPE))
    if draw(st.booleans()):
        tensor = tensor.permute(draw(st.permutations(range(tensor.dim()))))
    if tensor.dim() and draw(st.booleans()):
        tensor = tensor[:: draw(st.integers(1, 3))]
    if tensor.dim() and draw(st.booleans()):
        tensor = tensor[..., :1].expand(*tensor.shape[:-1], min(1, tensor.shape[-1]) * 3)
    return tensor


SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=5)
ARRAYS = tensors().map(lambda tensor: (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy())
BATCHES = st.recursive(
    SCALARS | tensors() | ARRAYS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.tuples(inner, inner).map(lambda pair: Pair(*pair))
        | inner.map(lambda item: [item, item])
    ),
    max_leaves=8,
)


def assert_equal(got: Any, want: Any) -> None:
    assert type(got) is type(want)
    if isinstance(want, torch.Tensor):
        assert got.dtype is want.dtype
        assert got.shape == want.shape
        assert torch.equal(got, want)
        assert [stride == 0 for stride in got.stride()] == [stride == 0 for stride in want.stride()]
    elif isinstance(want, np.ndarray):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    elif isinstance(want, dict):
        assert list(got) == list(want)
        for key, value in want.items():
            assert_equal(got[key], value)
    elif isinstance(want, list | tuple):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            assert_equal(one, other)
        same = [[a is b for b in want] for a in want if isinstance(a, torch.Tensor | np.ndarray)]
        assert [[a is b for b in got] for a in got if isinstance(a, torch.Tensor | np.ndarray)] == same
    else:
        assert got == want


@given(BATCHES)
def test_any_structure_arrives_equal(batch: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_equal(heap_codec.loads(heap_codec.dumps(batch)), batch)


@given(st.lists(tensors(), max_size=5), st.data())
def test_views_of_one_storage_alias_or_travel_alone(bases: list[torch.Tensor], data: st.DataObject) -> None:
    batch = [
        view
        for base in bases
        for view in (base, base[data.draw(st.integers(0, 2)) :] if base.dim() else base)
    ]
    assert_equal(heap_codec.loads(heap_codec.dumps(batch)), batch)
