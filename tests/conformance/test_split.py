"""Batches whose rows come from two workers are what one worker would have made: the same values or the same error."""

from __future__ import annotations

import enum
import os
from collections import Counter, OrderedDict, UserDict, UserList, namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import get_worker_info

import stoker
from tests.compat.compare import assert_same
from tests.conformance.datasets import Shared

BATCH = 40
ROWS = 3 * BATCH
Point = namedtuple("Point", ["x", "label"])


class Color(enum.IntEnum):
    RED = 1


class Pair(tuple[Any, ...]):
    """A tuple subclass without fields."""


class Marked(torch.Tensor):
    """A tensor subclass."""


def late(early: Callable[[int], Any], after: Callable[[int], Any]) -> Callable[[int], Any]:
    """One kind of sample in part 0 of the first batch, another from part 1 on."""
    return lambda index: (early if index < BATCH // 2 - 7 else after)(index)


def once(common: Callable[[int], Any], odd: Any) -> Callable[[int], Any]:
    """The same kind everywhere but for one row in the second part of the first batch."""
    return lambda index: odd if index == BATCH - 3 else common(index)


def tensor(dtype: torch.dtype, *shape: int) -> Callable[[int], torch.Tensor]:
    return lambda index: torch.full(shape, index % 100, dtype=dtype)


def array(dtype: Any, *shape: int) -> Callable[[int], Any]:
    return lambda index: np.full(shape, index % 100, dtype=dtype)


REGULAR: dict[str, Callable[[int], Any]] = {
    "int": lambda index: index,
    "float": lambda index: index / 7,
    "bool": lambda index: index % 3 == 0,
    "string": lambda index: f"row {index}",
    "bytes": lambda index: bytes([index]),
    "uint8 rows": tensor(torch.uint8, 3, 5),
    "bfloat16": tensor(torch.bfloat16, 3),
    "complex": tensor(torch.complex64, 2),
    "scalar tensor": tensor(torch.float32),
    "empty tensor": tensor(torch.float32, 0, 4),
    "transposed": lambda index: torch.arange(12.0).reshape(3, 4).t() + index,
    "array": array(np.int16, 2, 2),
    "scalar array": array(np.float64),
    "numpy float32": lambda index: np.float32(index / 3),
    "numpy int8": lambda index: np.int8(index % 99),
    "numpy bool": lambda index: np.bool_(index % 2),
    "tuple": lambda index: (index, str(index)),
    "nested": lambda index: {"a": {"b": [torch.tensor(index), (index, 0.5)]}, "c": np.arange(3) + index},
    "namedtuple": lambda index: Point(torch.tensor([index]), f"{index}"),
    "not a number": lambda index: float("nan") if index % 2 else -0.0,
}

IRREGULAR: dict[str, Callable[[int], Any]] = {
    "int then float": late(lambda index: index, float),
    "float then int": late(float, lambda index: index),
    "one float among ints": once(lambda index: index, 2.5),
    "bool then int": late(lambda index: index % 2 == 0, lambda index: index),
    "too large an int": once(lambda index: index, 1 << 70),
    "int32 then int64": late(tensor(torch.int32, 2), tensor(torch.int64, 2)),
    "int then float tensor": late(tensor(torch.int64, 2), tensor(torch.float32, 2)),
    "float16 then bfloat16": late(tensor(torch.float16, 2), tensor(torch.bfloat16, 2)),
    "one odd dtype": once(tensor(torch.float32, 2), torch.ones(2, dtype=torch.float64)),
    "float32 then float64 array": late(array(np.float32, 2), array(np.float64, 2)),
    "tensor then array": late(tensor(torch.float32, 2), array(np.float32, 2)),
    "array then tensor": late(array(np.float32, 2), tensor(torch.float32, 2)),
    "array then list": late(array(np.float32, 2), lambda index: [1.0, 2.0]),
    "numpy then python number": late(lambda index: np.float32(index), float),
    "python then numpy number": late(float, lambda index: np.float32(index)),
    "numpy int32 then int64": late(lambda index: np.int32(index), lambda index: np.int64(index)),
    "numpy float32 then float64": late(lambda index: np.float32(index), lambda index: np.float64(index)),
    "ragged over parts": late(tensor(torch.float32, 2), tensor(torch.float32, 3)),
    "one ragged row": once(tensor(torch.float32, 2), torch.ones(3)),
    "ragged lists": late(lambda index: [1, 2], lambda index: [1, 2, 3]),
    "empty lists": lambda index: [],
    "empty dicts": lambda index: {},
    "None": lambda index: None,
    "one None": once(lambda index: index, None),
    "None inside": once(lambda index: {"a": {"b": index}}, {"a": {"b": None}}),
    "string then bytes": late(str, lambda index: bytes([index])),
    "string then int": late(str, lambda index: index),
    "int then string": late(lambda index: index, str),
    "numpy string": lambda index: np.str_(f"{index}"),
    "array of strings": lambda index: np.array([f"{index}"]),
    "array of objects": lambda index: np.array([None, index]),
    "datetime": lambda index: np.datetime64("2020-01-01") + index,
    "keys in another order": late(lambda index: {"a": index, "b": 1}, lambda index: {"b": 2, "a": index}),
    "a key too many": late(lambda index: {"a": index}, lambda index: {"a": index, "b": 1}),
    "a key too few": late(lambda index: {"a": index, "b": 1}, lambda index: {"a": index}),
    "ordered dict": lambda index: OrderedDict(b=index, a=str(index)),
    "user dict": lambda index: UserDict({"x": index, "y": torch.tensor(index)}),
    "counter": lambda index: Counter({"x": index + 1}),
    "dict then ordered dict": late(lambda index: {"a": index}, lambda index: OrderedDict(a=index)),
    "user list": lambda index: UserList([index, torch.tensor([index])]),
    "list then tuple": late(lambda index: [index, 1], lambda index: (index, 1)),
    "tuple subclass": lambda index: Pair((index, 2)),
    "namedtuple then tuple": late(lambda index: Point(index, 1), lambda index: (index, 1)),
    "enum": lambda index: Color.RED,
    "range": lambda index: range(index, index + 2),
    "tensor subclass": lambda index: torch.ones(2).as_subclass(Marked),
    "parameter": lambda index: torch.nn.Parameter(torch.ones(2) * index),
    "gradient": lambda index: torch.ones(2, requires_grad=True),
    "one gradient": once(tensor(torch.float32, 2), torch.ones(2, requires_grad=True)),
    "sparse": lambda index: torch.eye(2).to_sparse(),
    "object": lambda index: object,
    "an object inside": lambda index: {"good": index, "bad": {"worse": {1, 2}}},
}

# Collated anew these would carry a graph, which no worker can send.
GRAPHS = {"parameter", "gradient", "one gradient"}


def drain(loader: Any) -> list[Any]:
    """Every batch or error, to the end: after an error the iterator goes on."""
    seen: list[Any] = []
    iterator = iter(loader)
    while True:
        try:
            seen.append(next(iterator))
        except StopIteration:
            return seen
        except Exception as error:
            notes = [note for note in getattr(error, "__notes__", ()) if note.startswith("stoker")]
            seen.append((type(error), error.args, notes))


@pytest.mark.parametrize("name", [*REGULAR, *IRREGULAR])
def test_a_split_batch_is_what_one_worker_makes(name: str, tmp_path: Path) -> None:
    dataset = Shared({**REGULAR, **IRREGULAR}[name], ROWS, BATCH, tmp_path)
    expected = drain(stoker.DataLoader(dataset, BATCH))
    if name in GRAPHS:
        expected = [batch.detach() for batch in expected]
    assert dataset.tally.take() == dict.fromkeys(range(ROWS), 1)
    dataset.arrange()
    found = drain(stoker.DataLoader(dataset, BATCH, num_workers=2, multiprocessing_context="fork"))
    assert_same(expected, found)
    assert dataset.tally.take() == dict.fromkeys(range(ROWS), 1), "rows were fetched more than once"


def failing(*rows: int) -> Callable[[int], Any]:
    def case(index: int) -> int:
        if index in rows:
            raise LookupError(f"no row {index}")
        return index

    return case


@pytest.mark.parametrize("rows", [(5,), (30,), (5, 30), (30, BATCH + 1)])
def test_the_first_row_that_fails_is_the_one_that_is_told(rows: tuple[int, ...], tmp_path: Path) -> None:
    dataset = Shared(failing(*rows), ROWS, BATCH, tmp_path)
    expected = drain(stoker.DataLoader(dataset, BATCH))
    dataset.arrange()
    dataset.tally.take()
    found = drain(stoker.DataLoader(dataset, BATCH, num_workers=2, multiprocessing_context="fork"))
    assert_same(expected, found)
    assert set(dataset.tally.take().values()) == {1}


def test_what_cannot_travel_is_refused_as_without_workers(tmp_path: Path) -> None:
    dataset = Shared(lambda index: (number for number in range(index)), ROWS, BATCH, tmp_path)
    expected = drain(stoker.DataLoader(dataset, BATCH))
    dataset.arrange()
    found = drain(stoker.DataLoader(dataset, BATCH, num_workers=2, multiprocessing_context="fork"))
    assert [error[0] for error in found] == [error[0] for error in expected] == [TypeError] * 3


def made_by(index: int) -> Any:
    """Which worker made this row; -1 without workers."""
    info = get_worker_info()
    return index, -1 if info is None else info.id


def test_the_first_batch_is_made_by_two_workers(tmp_path: Path) -> None:
    dataset = Shared(made_by, ROWS, BATCH, tmp_path)
    dataset.arrange()
    [(rows, makers), *rest] = stoker.DataLoader(dataset, BATCH, num_workers=2, multiprocessing_context="fork")
    assert rows.tolist() == list(range(BATCH))
    assert set(makers.tolist()) == {0, 1}
    assert [rows.tolist()[0] for rows, _ in rest] == [BATCH, 2 * BATCH]


@pytest.mark.parametrize(
    "options",
    [
        {"split_batches": False, "num_workers": 2},
        {"num_workers": 1},
        {"num_workers": 2, "batch_size": 16},
        {"num_workers": 2, "collate_fn": list},
        {"num_workers": 2, "rng": "torch"},
    ],
    ids=["off", "one worker", "one range", "own collation", "static assignment"],
)
def test_other_batches_are_made_by_one_worker(options: dict[str, Any], tmp_path: Path) -> None:
    dataset = Shared(made_by, ROWS, BATCH, tmp_path)
    dataset._meeting = "/dev/null"
    for batch in stoker.DataLoader(dataset, **{"batch_size": BATCH, **options}):
        makers = [maker for _, maker in batch] if isinstance(batch[0], tuple) else batch[1].tolist()
        assert len(set(makers)) == 1


@pytest.mark.parametrize(("name", "misfit"), [("int then float", True), ("nested", False)])
def test_only_parts_that_do_not_fit_end_the_splitting(name: str, misfit: bool, tmp_path: Path) -> None:
    dataset = Shared({**REGULAR, **IRREGULAR}[name], ROWS, BATCH, tmp_path)
    expected = drain(stoker.DataLoader(dataset, BATCH))
    dataset.arrange()
    options: dict[str, Any] = {"multiprocessing_context": "fork", "persistent_workers": True}
    with stoker.DataLoader(dataset, BATCH, num_workers=2, **options) as loader:
        assert_same(expected, drain(loader))
        pool: Any = loader._iterator
        assert pool.opener.misfit is misfit


class Epochs:
    """A batch sampler with a list of batches for every epoch."""

    def __init__(self, *epochs: list[int]) -> None:
        self._epochs = list(epochs)

    def __iter__(self) -> Iterator[list[int]]:
        return iter([self._epochs.pop(0)])


ODD = 100
"""Indices from here on give samples of another kind."""


@pytest.mark.parametrize("name", REGULAR)
def test_rows_in_agreed_places_and_rows_that_do_not_fit_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    regular = REGULAR[name]
    odd = 7 if isinstance(regular(0), float) else 2.5
    dataset = Shared(lambda index: odd if index >= ODD else regular(index), ROWS, BATCH, tmp_path)
    dataset._meeting = os.devnull
    fitting, mixed = list(range(BATCH)), [*range(30), *range(ODD, ODD + 10)]
    epochs = [fitting, fitting, mixed]
    expected = [drain(stoker.DataLoader(dataset, batch_sampler=[epoch])) for epoch in epochs]
    sizes: list[int] = []
    options: dict[str, Any] = {"multiprocessing_context": "fork", "persistent_workers": True}
    with stoker.DataLoader(dataset, batch_sampler=Epochs(*epochs), num_workers=2, **options) as loader:
        found = [drain(loader)]
        pool: Any = loader._iterator
        submit = type(pool.executor).submit

        def counted(task: Any) -> None:
            sizes.append(task.part.count)
            submit(pool.executor, task)

        monkeypatch.setattr(pool.executor, "submit", counted)
        for _ in range(2):
            pool.row_ns = 1e9  # rows that are thought to take a second each: the next ticket is split
            found.append(drain(loader))
        assert sizes == [2] * 4
        assert pool.opener.misfit
        monkeypatch.undo()
    assert_same(expected, found)
