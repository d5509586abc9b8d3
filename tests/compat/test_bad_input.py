"""Rows no loader can use: one clear error with the index for every number of workers; then it goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.compat.compare import StokerLoader, TorchLoader, mentions_index
from tests.compat.samples import FAR, Endless, keep_rows

WORKERS = (0, 1, 2)


class Spoilt(Endless):
    """One bad row, made where it is asked for: most of them cannot be sent to a worker."""

    def __init__(self, spoil: Callable[[], Any]) -> None:
        self.spoil = spoil

    def __getitem__(self, index: int) -> Any:
        return self.spoil() if index == FAR else super().__getitem__(index)


def give_none() -> Any:
    return None


def give_other_shape() -> Any:
    return torch.zeros(3, dtype=torch.int64)


def give_other_rank() -> Any:
    return torch.zeros(2, 2, dtype=torch.int64)


def give_other_kind() -> Any:
    return "a string among tensors"


def stop() -> Any:
    raise StopIteration


def give_generator() -> Any:
    return (row for row in [1])


def give_lock() -> Any:
    return threading.Lock()


def give_ragged_dict() -> Any:
    return {"only": 1}


def give_object_array() -> Any:
    return np.array([{}, None], dtype=object)


SPOILERS = [
    give_none, give_other_shape, give_other_rank, give_other_kind, stop, give_generator, give_lock,
    give_ragged_dict, give_object_array,
]  # fmt: skip


def error_and_rest(loader: Any) -> tuple[Exception, list[Any]]:
    """What the first bad batch raises and what comes after it."""
    iterator = iter(loader)
    before = next(iterator)
    assert before.tolist() == [[1, -1], [2, -2]]
    try:
        bad = next(iterator)
    except StopIteration:
        raise AssertionError("the epoch ended silently") from None
    except Exception as error:
        return error, [batch.tolist() for batch in iterator]
    raise AssertionError(f"a bad row became a batch: {bad!r}")


@pytest.mark.parametrize("spoil", SPOILERS)
def test_one_error_for_every_number_of_workers(spoil: Callable[[], Any]) -> None:
    def told(num_workers: int) -> tuple[type, list[Any]]:
        sampler = [1, 2, 3, FAR, 5, 6, 7, 8]
        loader = StokerLoader(Spoilt(spoil), sampler=sampler, batch_size=2, num_workers=num_workers)
        error, rest = error_and_rest(loader)
        assert mentions_index(error, FAR), f"no index in {error!r}, {getattr(error, '__notes__', None)}"
        return type(error), rest

    expected_rest = [[[5, -5], [6, -6]], [[7, -7], [8, -8]]]
    outcomes = [told(num_workers) for num_workers in WORKERS]
    assert {kind for kind, _ in outcomes} == {outcomes[0][0]}
    assert [rest for _, rest in outcomes] == [expected_rest] * 3


@pytest.mark.parametrize("spoil", [spoil for spoil in SPOILERS if spoil is not stop])
@pytest.mark.parametrize("num_workers", WORKERS)
def test_the_error_is_what_torchs_collation_raises(spoil: Callable[[], Any], num_workers: int) -> None:
    sampler = [1, 2, 3, FAR]
    theirs, _ = error_and_rest(TorchLoader(Spoilt(spoil), sampler=sampler, batch_size=2))
    ours, _ = error_and_rest(
        StokerLoader(Spoilt(spoil), sampler=sampler, batch_size=2, num_workers=num_workers)
    )
    assert isinstance(ours, type(theirs))


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("batch_size", [None, 1, 2])
def test_stop_iteration_out_of_a_row_is_no_end_of_the_epoch(batch_size: int | None, num_workers: int) -> None:
    loader = StokerLoader(Spoilt(stop), sampler=[1, FAR, 2], batch_size=batch_size, num_workers=num_workers)
    with pytest.raises(RuntimeError, match="StopIteration") as caught:
        list(loader)
    assert mentions_index(caught.value, FAR)


@pytest.mark.parametrize("num_workers", WORKERS)
def test_ragged_rows_are_told_with_their_shapes(num_workers: int) -> None:
    loader = StokerLoader(
        Spoilt(give_other_shape), sampler=[1, 2, 3, FAR], batch_size=2, num_workers=num_workers
    )
    error, _ = error_and_rest(loader)
    told = "\n".join([str(error), *getattr(error, "__notes__", [])])
    assert "[2]" in told or "(2,)" in told
    assert "[3]" in told or "(3,)" in told


@pytest.mark.parametrize("spoil", [give_generator, give_lock])
def test_a_batch_that_cannot_be_sent_names_its_rows(spoil: Callable[[], Any]) -> None:
    """torch waits forever here: it pickles in a thread that nobody listens to."""
    kinds = []
    for num_workers in (1, 2):
        loader = StokerLoader(
            Spoilt(spoil), sampler=[1, FAR, 2], batch_size=1, collate_fn=keep_rows, num_workers=num_workers
        )
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(Exception, match=r"generator|lock") as caught:
            next(iterator)
        assert mentions_index(caught.value, FAR)
        assert next(iterator)[0].tolist() == [2, -2]
        kinds.append(type(caught.value))
    assert len(set(kinds)) == 1


def with_graph(rows: list[Any]) -> Any:
    return torch.stack(rows).float().requires_grad_() * 2


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_tensor_with_a_graph_arrives_detached(num_workers: int) -> None:
    """torch refuses to send it and hangs; the values are what the user wants."""
    batches = list(StokerLoader(Endless(), sampler=[1, 2], collate_fn=with_graph, num_workers=num_workers))
    assert [batch.tolist() for batch in batches] == [[[2.0, -2.0]], [[4.0, -4.0]]]
    assert not any(batch.requires_grad for batch in batches)


@pytest.mark.parametrize("num_workers", WORKERS)
def test_an_index_out_of_range(num_workers: int) -> None:
    for loader in (
        TorchLoader([1, 2, 3], sampler=[0, FAR]),
        StokerLoader([1, 2, 3], sampler=[0, FAR], num_workers=num_workers),
    ):
        with pytest.raises(IndexError, match="list index out of range"):
            list(loader)


class NoRows:
    """A dataset without __getitem__."""

    def __len__(self) -> int:
        return 3


@pytest.mark.parametrize("num_workers", WORKERS)
def test_a_dataset_that_cannot_be_indexed(num_workers: int) -> None:
    for loader in (TorchLoader(NoRows()), StokerLoader(NoRows(), num_workers=num_workers)):
        with pytest.raises(TypeError, match="not subscriptable"):
            list(loader)
