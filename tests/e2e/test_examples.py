"""The three examples of the seed text on runtime errors: they simply work, under every start method."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import cv2
import pytest
import torch

import stoker
from examples import duel, lambda_transform, large_arrays, opencv_workers
from tests import warm
from tests.fault import rows

DATASETS = {
    "large arrays": lambda: large_arrays.LargeMemoryDataset(3),
    "lambda transform": lambda: lambda_transform.BadPickleDataset(30),
    "OpenCV": lambda: opencv_workers.ImageDataset(30),
}


@pytest.mark.parametrize("method", duel.METHODS)
@pytest.mark.parametrize("name", DATASETS)
def test_it_works_with_stoker(name: str, method: str) -> None:
    dataset: Any = DATASETS[name]()
    got = list(duel.loader_of(dataset, "stoker", method, num_workers=2))
    assert sum(len(batch) for batch in got) == len(dataset)
    if name == "lambda transform":
        assert all(0 <= value <= at for at, value in enumerate(torch.cat(got).tolist()))
    else:
        assert torch.equal(torch.cat(got), torch.stack([_tensor(each) for each in _all(dataset)]))


def _all(dataset: Any) -> list[Any]:
    return [dataset[index] for index in range(len(dataset))]


def _tensor(sample: Any) -> torch.Tensor:
    return torch.as_tensor(sample)


FULL = """
    import sys
    import stoker

    sys.path.insert(0, sys.argv[1])
    from examples import duel, large_arrays

    if __name__ == "__main__":
        try:
            list(duel.loader_of(large_arrays.LargeMemoryDataset(20), "torch", "fork"))
        except RuntimeError as error:
            print(stoker.explain(error).finding.code)
        print(sum(len(batch) for batch in duel.loader_of(large_arrays.LargeMemoryDataset(20), "stoker", "fork")))
        found = stoker.doctor(sys.argv[1] + "/examples/large_arrays.py:loader", select=["STK201"])
        for finding in found.findings:
            print(finding.code, finding.severity, finding.where)
"""


def test_large_arrays_are_diagnosed_where_shared_memory_is_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's loader runs out of a /dev/shm of 16 MB; the doctor says so before, ``explain`` after; stoker's works."""
    within, refusal = rows.small_shm()
    if refusal:
        pytest.skip(refusal)
    monkeypatch.setenv("EXAMPLE_SIZE", "20")
    told = rows.said(rows.run(FULL, str(warm.ROOT), folder=tmp_path, within=within))
    assert told == ["STK201", "20", "STK201 high /dev/shm"]


def test_a_lambda_is_diagnosed_and_what_torch_says_of_it_explained() -> None:
    (found,) = stoker.doctor("examples/lambda_transform.py:loader", select=["STK102"]).findings
    assert found.where == "dataset.transform"
    failed = pytest.raises((AttributeError, pickle.PicklingError))
    with failed as raised, pytest.warns(UserWarning, match="Got pickle error"):
        list(duel.loader_of(lambda_transform.BadPickleDataset(10), "torch", "spawn", num_workers=1))
    explained = stoker.explain(raised.value).finding
    assert explained is not None
    assert explained.code == "STK102"


def test_threads_of_opencv_are_diagnosed() -> None:
    """On a machine of one CPU OpenCV has one thread."""
    found = stoker.doctor("examples/opencv_workers.py:loader", select=["STK307"]).findings
    assert [(each.code, each.where) for each in found] == [("STK307", "cv2")] * (cv2.getNumThreads() > 1)
