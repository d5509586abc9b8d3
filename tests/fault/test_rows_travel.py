"""Rows about datasets on their way to spawned workers: what can travel does, the rest is named by its path."""

from __future__ import annotations

import io
import math
import sqlite3
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import stoker
import stoker.errors
from tests.fault.rows import METHODS, run, said, told

BY_VALUE = ("spawn", "forkserver")
"""Both get the same packed spec; where only its contents matter, the fork server, whose workers start quickly, stands for both."""


class Carrying(Dataset[float]):
    """Eight numbers, made with the help of what it carries in ``reader.handle``."""

    def __init__(self, handle: Any, use: Callable[[Any, int], float] | None = None) -> None:
        self.reader = types.SimpleNamespace(name="reader", handle=handle)
        self.use = use

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> float:
        return float(index) if self.use is None else self.use(self.reader.handle, index)


def values(dataset: Dataset[float], **options: Any) -> list[float]:
    return [float(value) for batch in stoker.DataLoader(dataset, batch_size=2, **options) for value in batch]


@pytest.mark.parametrize("method", BY_VALUE)
def test_lambdas_local_classes_and_modules_travel(method: str) -> None:
    """Row 19: torch says ``Can't pickle local object`` or ``cannot pickle 'module' object``."""
    scale = 3.0

    class Local(Carrying):
        def __getitem__(self, index: int) -> float:
            return super().__getitem__(index) + scale

    def collate(samples: list[float]) -> torch.Tensor:
        return torch.tensor(samples) * scale

    dataset = Local(
        [lambda index: index * scale, math], lambda handle, index: handle[1].floor(handle[0](index))
    )
    found = values(
        dataset, num_workers=1, multiprocessing_context=method, collate_fn=collate,
        worker_init_fn=lambda worker: torch.set_num_threads(1),
    )  # fmt: skip
    assert found == values(dataset, collate_fn=collate)
    assert found[1] == 18.0


@pytest.fixture(params=["file", "sqlite", "lock", "generator"])
def held(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Something that stays with the process that opened it."""
    if request.param == "file":
        (tmp_path / "rows.bin").write_bytes(b"rows")
        with open(tmp_path / "rows.bin", "rb") as file:
            yield file
    elif request.param == "sqlite":
        connection = sqlite3.connect(tmp_path / "rows.db")
        yield connection
        connection.close()
    else:
        yield threading.Lock() if request.param == "lock" else (row for row in [1])


@pytest.mark.parametrize("method", BY_VALUE)
def test_what_cannot_travel_is_named_by_its_path(method: str, held: Any) -> None:
    """Row 19: an open file, a database connection, a lock, a generator."""
    loader = stoker.DataLoader(Carrying(held), num_workers=2, multiprocessing_context=method)
    with pytest.raises(stoker.errors.UnsendableError) as caught:
        iter(loader)
    assert "dataset.reader.handle" in told(caught.value)
    assert type(held).__name__ in told(caught.value)


def test_what_cannot_travel_stays_usable_without_a_journey(held: Any) -> None:
    """Row 19: a fork carries it along, so there is nothing to refuse."""
    assert values(Carrying(held), num_workers=2, multiprocessing_context="fork") == list(range(8))


class Tensors(Dataset[torch.Tensor]):
    """A dataset that is a list of tensors."""

    def __init__(self, count: int) -> None:
        self.tensors = [torch.full((3,), float(number)) for number in range(count)]

    def __len__(self) -> int:
        return len(self.tensors)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.tensors[index]


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_dataset_of_300_tensors(method: str) -> None:
    """Row 20: torch says ``too many fds`` under forkserver."""
    loader = stoker.DataLoader(Tensors(300), batch_size=100, num_workers=2, multiprocessing_context=method)
    assert [row[0] for batch in loader for row in batch.tolist()] == list(range(300))


@pytest.mark.parametrize("method", METHODS)
def test_a_dataset_of_300_shared_tensors(method: str) -> None:
    """Row 20: tensors that the user shared arrive, and stay shared."""
    dataset = Tensors(300)
    for tensor in dataset.tensors:
        tensor.share_memory_()
    loader = stoker.DataLoader(
        dataset, batch_size=100, num_workers=1, multiprocessing_context=method, persistent_workers=True
    )
    with loader:
        assert [row[0] for batch in loader for row in batch.tolist()] == list(range(300))
        for tensor in dataset.tensors:
            tensor += 1000
        assert [row[0] for batch in loader for row in batch.tolist()] == list(range(1000, 1300))


FEW_DESCRIPTORS = """
    import resource, sys
    import torch
    from stoker import DataLoader
    from torch.utils.data import TensorDataset

    if __name__ == "__main__":
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        tensors = [torch.arange(4.0) + number for number in range(300)]
        loader = DataLoader(TensorDataset(*tensors), batch_size=2, num_workers=1, multiprocessing_context=sys.argv[1])
        print([float(batch[299][0]) for batch in loader])
"""


@pytest.mark.parametrize("method", BY_VALUE)
def test_a_dataset_of_more_tensors_than_descriptors(method: str, tmp_path: Path) -> None:
    """Row 20: where 256 descriptors are allowed, 300 tensors travel all the same."""
    assert said(run(FEW_DESCRIPTORS, method, folder=tmp_path)) == ["[299.0, 301.0]"]


NO_GUARD = """
    import sys
    import torch
    from stoker import DataLoader

    print("the script runs")
    OFFSET = 10

    # next cell
    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            return index + OFFSET

    # next cell
    def collate(samples):
        return torch.tensor(samples) * 2

    # next cell
    method = sys.argv[1]
    for batch in DataLoader(Rows(), batch_size=3, num_workers=1, collate_fn=collate, multiprocessing_context=method):
        print(batch.tolist())
"""

NO_GUARD_SAID = ["the script runs", "[20, 22, 24]", "[26, 28, 30]"]

NOTEBOOK = f"""
    import sys, textwrap, types

    class Shell:
        def __init__(self):
            self.module = types.ModuleType("__main__")
            sys.modules["__main__"] = self.module

        def run(self, cell):
            exec(compile(cell, "<ipython-input>", "exec"), self.module.__dict__)

    shell = Shell()
    for cell in textwrap.dedent({NO_GUARD!r}).split("# next cell"):
        shell.run(cell)
"""


@pytest.mark.parametrize("method", BY_VALUE)
def test_a_script_without_a_main_guard(method: str, tmp_path: Path) -> None:
    """Row 21: the worker does not run the script again."""
    assert said(run(NO_GUARD, method, folder=tmp_path)) == NO_GUARD_SAID


@pytest.mark.parametrize("method", BY_VALUE)
def test_code_from_standard_input(method: str) -> None:
    """Row 21: there is no file that a worker could import."""
    assert said(run(NO_GUARD, method)) == NO_GUARD_SAID


@pytest.mark.parametrize("method", BY_VALUE)
def test_a_notebook(method: str, tmp_path: Path) -> None:
    """Row 21: cells that were run one by one in a ``__main__`` of their own, which has no file."""
    assert said(run(NOTEBOOK, method, folder=tmp_path)) == NO_GUARD_SAID


def test_the_path_leads_through_dictionaries_and_lists() -> None:
    """Row 19: the innermost thing that cannot travel is named, not what holds it."""
    dataset = Carrying({"shards": [1, io.TextIOWrapper(io.BytesIO())]})
    with pytest.raises(stoker.errors.UnsendableError) as caught:
        iter(stoker.DataLoader(dataset, num_workers=1, multiprocessing_context="spawn"))
    assert "dataset.reader.handle['shards'][1]" in told(caught.value)
