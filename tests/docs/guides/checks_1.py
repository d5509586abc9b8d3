"""Checks 1xx: what travels to workers."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from tests.docs.guides.guide import Names, Steps, guide, raises


class Pictures(Dataset[Any]):
    """With a transform."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __getitem__(self, index: int) -> Any:
        return self.transform(index)


@guide("docs/checks/STK101.md")
def unsendable(names: Names) -> Steps:
    Path("records").write_bytes(b"1234")
    yield
    with raises(TypeError, "cannot pickle '_io.BufferedReader' object"):
        pickle.dumps(names["Records"]("records"))
    yield
    records = pickle.loads(pickle.dumps(names["Records"]("records")))
    records[0]
    assert records.file.name == "records"
    yield
    names["Records"].__getstate__ = names["__getstate__"]
    assert pickle.loads(pickle.dumps(records)).file is None


@guide("docs/checks/STK102.md")
def local_code(names: Names) -> Steps:
    names["Pictures"] = Pictures
    yield
    with raises((AttributeError, pickle.PicklingError), "Can't pickle <function <lambda>"):
        pickle.dumps(names["loader"].dataset)
    yield
    assert pickle.loads(pickle.dumps(names["dataset"]))[51] == 0.2


class File(dict[str, list[int]]):
    """A double of h5py's, which is not among our packages."""

    def __init__(self, path: str) -> None:
        super().__init__(slices=[1, 2, 3])
        self.open = os.open(path, os.O_RDONLY)

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.open)


@guide("docs/checks/STK103.md")
def open_handle(names: Names) -> Steps:
    Path("slices.h5").write_bytes(b"123456")
    names["h5py"] = SimpleNamespace(File=File)
    yield
    slices = names["Slices"]("slices.h5")
    assert slices[1] == 2
    if (child := os.fork()) == 0:  # a worker
        os.read(slices.file.open, 3)
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(slices.file.open, 3) == b"456", "one place in the file for all processes"
    yield
    slices = names["Slices"]("slices.h5")
    assert slices.file is None
    assert (slices.length, slices[2]) == (3, 3)


@guide("docs/checks/STK104.md")
def held_thread(names: Names) -> Steps:
    names.update(head=len, fetch=str)
    yield
    remote = names["Remote"](["a"] * 20)
    assert remote[0] == "1"
    if (child := os.fork()) == 0:  # a worker: the pool thinks that it has threads
        os._exit(7 if not any(each.is_alive() for each in remote.pool._threads) else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    remote.pool.shutdown()
    yield
    remote.pool = None
    names["__getitem__"](remote, 0)
    assert remote.pool.submit(len, "ab").result() == 2
    remote.pool.shutdown()


@guide("docs/checks/STK105.md")
def many_tensors(names: Names) -> Steps:
    files = ["0.pt", "1.pt"]
    for each in files:
        torch.save(torch.ones(2), each)
    yield
    assert len(names["Features"](files).features) == 2


@guide("docs/checks/STK106.md")
def slow_travel(names: Names) -> Steps:
    import pandas

    yield
    rows = names["Rows"](pandas.DataFrame({"a": [1, 2]})).rows
    assert rows == [{"a": 1}, {"a": 2}]


@guide("docs/checks/STK107.md")
def device_tensor(names: Names) -> Steps:
    names["resnet18"] = names["Net"]
    yield
    images = SimpleNamespace(mean=lambda: SimpleNamespace(cuda=lambda: torch.zeros((), device="meta")))
    normalised = names["Normalised"](images)
    assert normalised.encoder(torch.ones(1, 3, 8, 8)).requires_grad


@guide("docs/checks/STK108.md")
def eager_data(names: Names) -> Steps:
    paths = ["0.npy", "1.npy"]
    for number, each in enumerate(paths):
        np.save(each, np.full(3, number))
    for _ in range(2):
        yield
        assert names["Volumes"](paths)[1].tolist() == [1, 1, 1]
    assert "volumes" not in vars(names["Volumes"](paths))
