"""Checks 4xx: samples and batches."""

from __future__ import annotations

import pickle
import queue
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils.data import Dataset, default_collate

from tests.docs.guides.guide import Names, Steps, guide, in_workers, raises


@guide("docs/checks/STK401.md")
def ragged(names: Names) -> Steps:
    names["read_image"] = lambda height: torch.zeros(3, height, 224)
    yield
    dataset = SimpleNamespace(paths=[224, 180])
    with raises(RuntimeError, "stack expects each tensor to be equal size"):
        default_collate([names["__getitem__"](dataset, index) for index in range(2)])
    yield
    rows, labels = names["padded"]([(torch.ones(2), 5), (torch.ones(3), 6)])
    assert (rows.tolist(), labels.tolist()) == ([[1, 1, 0], [1, 1, 1]], [5, 6])


@guide("docs/checks/STK402.md")
def none_sample(names: Names) -> Steps:
    names["read"] = open
    yield
    sample = names["__getitem__"](SimpleNamespace(paths=["not there"]), 0)
    assert sample is None
    with raises(TypeError, "found <class 'NoneType'>"):
        default_collate([sample])


@guide("docs/checks/STK403.md")
def mixed_types(names: Names) -> Steps:
    yield
    dataset = SimpleNamespace(lines=['{"x": [1, 2]}', '{"x": [1.0, 2.5]}'])
    kinds = [names["__getitem__"](dataset, index).dtype for index in range(2)]
    assert kinds == [torch.int64, torch.float32]


@guide("docs/checks/STK405.md")
def stop_iteration(names: Names) -> Steps:
    yield
    with raises(StopIteration):
        names["__getitem__"](SimpleNamespace(reader=iter(())), 0)


class Row(torch.Tensor):
    """With a name."""

    name = "a"


@guide("docs/checks/STK406.md")
def unsendable_batch(names: Names) -> Steps:
    yield
    with raises(TypeError, "cannot pickle 'generator' object"):
        pickle.dumps(names["collate"]([torch.ones(1).as_subclass(Row)]))


@guide("docs/checks/STK407.md")
def view_bloat(names: Names) -> Steps:
    yield
    dataset = SimpleNamespace(table=torch.zeros(1000))
    row = names["__getitem__"](dataset, 3)
    assert row.untyped_storage().nbytes() == 4000


@guide("docs/checks/STK408.md")
def tiny_tensors(names: Names) -> Steps:
    yield
    assert len(names["collate"](range(256))) == 256


@guide("docs/checks/STK409.md")
def batch_trip(names: Names) -> Steps:
    yield
    dataset = SimpleNamespace(whole=[7], queue=queue.Queue())
    assert names["__getitem__"](dataset, 0) == 7


@guide("docs/checks/STK410.md")
def local_exception(names: Names) -> Steps:
    yield
    try:
        names["build"](["a"])[0]
    except Exception as error:
        broken = error
    with raises((AttributeError, pickle.PicklingError), "Can't pickle"):
        pickle.dumps(broken)


@guide("docs/checks/STK411.md")
def hanging_sample(names: Names) -> Steps:
    yield
    session = SimpleNamespace(get=lambda url: SimpleNamespace(content=url.encode()))
    assert names["__getitem__"](SimpleNamespace(session=session, urls=["a"]), 0) == b"a"


@guide("docs/checks/STK412.md")
def deadly_sample(names: Names) -> Steps:
    names["decoder"] = SimpleNamespace(decode=len)
    yield
    assert names["__getitem__"](SimpleNamespace(blobs=["ab"]), 0) == 2


@guide("docs/checks/STK808.md")
def debugger(names: Names) -> Steps:
    yield

    class Stopped(Dataset[Any]):
        __getitem__ = names["__getitem__"]

        def __len__(self) -> int:
            return 1

    with raises(Exception, "BdbQuit"):
        in_workers(Stopped(), 1)


@guide("docs/checks/STK810.md")
def failing_init(names: Names) -> Steps:
    yield
    with raises(ValueError, "Seed must be between 0 and 2**32 - 1"):
        in_workers(range(2), worker_init_fn=names["seed"])
