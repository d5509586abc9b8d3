"""Checks 2xx and 3xx: the machine and the environment."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from tests.docs.guides.guide import Names, Steps, guide, raises


class Wide(Dataset[dict[str, torch.Tensor]]):
    """A sample is a dict of 40 tensors."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {str(number): torch.tensor(index) for number in range(40)}


def limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@guide("docs/checks/STK202.md")
def few_descriptors(names: Names) -> Steps:
    names["ds"] = Wide()
    yield
    assert len(names["batch"]) == 40
    yield
    assert limit() == names["hard"]


@guide("docs/checks/STK203.md")
def few_maps(names: Names) -> Steps:
    names["loader"] = DataLoader(Wide(), batch_size=16, num_workers=1)
    yield
    maps = Path("/proc/self/maps").read_text()
    assert maps.count("/torch_") >= 40 * len(names["outputs"]) == 160


@guide("docs/checks/STK204.md")
def fewer_cpus(names: Names) -> Steps:
    yield
    assert names["loader"].num_workers == os.cpu_count()


@guide("docs/checks/STK209.md")
def sharing_strategy(names: Names) -> Steps:
    yield
    assert torch.multiprocessing.get_sharing_strategy() == "file_system"
    yield
    assert limit() == names["hard"]


@contextmanager
def imported_by_a_worker(names: Names) -> Iterator[None]:
    """As ``multiprocessing`` has it while a spawned worker imports the script."""
    process: Any = multiprocessing.current_process()
    names["__name__"], process._inheriting = "__mp_main__", True
    try:
        yield
    finally:
        names["__name__"] = "__main__"
        del process._inheriting


@guide("docs/checks/STK301.md")
def main_guard(names: Names) -> Steps:
    with raises(RuntimeError, "An attempt has been made to start a new process"), imported_by_a_worker(names):
        yield
    with imported_by_a_worker(names):
        yield
    names["DataLoader"] = lambda ds, num_workers, **_: DataLoader(ds, num_workers=num_workers, batch_size=8)
    names["main"]()


@guide("docs/checks/STK302.md")
def notebook(names: Names) -> Steps:
    yield
    sent = pickle.dumps(names["loader"].dataset)
    assert b"__main__" in sent, "a worker has to find the class by its name"
    assert len(sent) < 200


@guide("docs/checks/STK303.md")
def fork_hazard(names: Names) -> Steps:
    import polars

    polars.DataFrame({"label": [1, 2]}).write_parquet("labels.parquet")
    names.update(pl=polars, Rows=lambda table: table["label"].to_list())
    yield
    assert names["loader"].dataset == [1, 2]


@guide("docs/checks/STK304.md")
def cuda_in_worker(names: Names) -> Steps:
    yield
    dataset = SimpleNamespace(images=[SimpleNamespace(cuda=lambda: torch.tensor(255.0))])
    assert names["__getitem__"](dataset, 0) == 1


@guide("docs/checks/STK305.md")
def default_device(names: Names) -> Steps:
    """Without an accelerator it fails in other words: the random numbers are to be drawn on one all the same."""
    with raises((RuntimeError, AssertionError)):
        yield
    torch.set_default_device(None)
    names["Net"] = lambda: SimpleNamespace(to=str)
    names["loader"] = [SimpleNamespace(to=lambda device, non_blocking: (device, non_blocking))]
    yield
    assert names["batch"] == ("cuda", True)


def train_fold(fold: int) -> None:
    """In a process of the pool."""
    list(DataLoader(range(4), num_workers=2))  # type: ignore[arg-type]


@guide("docs/checks/STK306.md")
def daemonic_parent(names: Names) -> Steps:
    names["train_fold"] = train_fold
    with raises(AssertionError, "daemonic processes are not allowed to have children"):
        yield


@guide("docs/checks/STK307.md")
def oversubscription(names: Names) -> Steps:
    import cv2
    import numpy as np

    cv2.imwrite("0.png", np.zeros((9, 9, 3), np.uint8))
    names["cv2"] = cv2
    yield
    pictures = names["Pictures"]()
    pictures.paths = ["0.png"]
    assert pictures[0].shape == (224, 224, 3)
    yield
    names["one_thread"](0)
    assert cv2.getNumThreads() == 1


@guide("docs/checks/STK308.md")
def foreign_fork(names: Names) -> Steps:
    """The block does what it warns of: where the collector runs in a worker, it prints just that."""
    gc.disable()
    names["train_loader"] = names["val_loader"] = DataLoader(names["dataset"], num_workers=1)
    yield


@guide("docs/checks/STK310.md")
def bad_arguments(names: Names) -> Steps:
    with raises(ValueError, "prefetch_factor option could only be specified in multiprocessing"):
        yield
    names["n"] = 0
    yield
    assert set(names["workers"]) == {"persistent_workers", "prefetch_factor"}
