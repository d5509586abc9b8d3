"""Rows about exceptions on their way back from a worker: each arrives as itself, and says where it comes from."""

from __future__ import annotations

import traceback
from email.message import Message
from typing import Any
from urllib.error import HTTPError

import pytest
import torch
from torch.utils.data import Dataset

import stoker
import stoker.errors
from tests.fault.rows import Made, steps, told

WORKERS = (0, 1, 2)


def fail_locally(index: int) -> int:
    class CorruptRecord(ValueError):
        pass

    if index == 5:
        try:
            raise KeyError("shard-3")
        except KeyError as cause:
            raise CorruptRecord("record 5 is torn") from cause
    return index


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_an_exception_class_that_nobody_can_import(method: str) -> None:
    """Row 4: text, type and cause arrive, and the batches after it do. torch waits for ever."""
    loader = stoker.DataLoader(
        Made(fail_locally), batch_size=4, num_workers=2, multiprocessing_context=method
    )
    before, error, after = steps(loader)
    assert type(error).__name__ == "CorruptRecord"
    assert isinstance(error, ValueError)
    assert str(error) == "record 5 is torn"
    assert "dataset index 5" in told(error)
    whole = "".join(traceback.format_exception(error))
    assert "fail_locally" in whole
    assert "shard-3" in whole
    assert [before.tolist(), after.tolist()] == [[0, 1, 2, 3], [8, 9, 10, 11]]


class Exhausted(Dataset[int]):
    """Reads on in a stream that is shorter than its ``__len__`` says."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        return next(iter([index] if index != 5 else []))


@pytest.mark.parametrize("executor", ["process", "thread"])
@pytest.mark.parametrize("num_workers", WORKERS)
def test_stop_iteration_in_getitem_does_not_end_the_epoch(num_workers: int, executor: str) -> None:
    """Row 16: torch's epoch would be over after four of twelve samples, silently."""
    options: dict[str, Any] = {"executor": executor} if num_workers else {}
    before, error, after = steps(
        stoker.DataLoader(Exhausted(), batch_size=4, num_workers=num_workers, **options)
    )
    assert isinstance(error, RuntimeError)
    assert "StopIteration for index 5" in str(error)
    assert "ended the epoch silently" in str(error)
    assert [before.tolist(), after.tolist()] == [[0, 1, 2, 3], [8, 9, 10, 11]]


def on_the_accelerator(index: int) -> torch.Tensor:
    raise RuntimeError(
        "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the "
        "'spawn' start method"
    )


@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_accelerator_used_in_a_forked_worker(num_workers: int) -> None:
    """Row 22: the error says what to do in the dataset."""
    [*errors] = steps(stoker.DataLoader(Made(on_the_accelerator), batch_size=4, num_workers=num_workers))
    assert len(errors) == 3
    for error in errors:
        assert isinstance(error, RuntimeError)
        assert str(error).startswith("Cannot re-initialize CUDA")
        assert "Return CPU tensors" in told(error)


class DecodeError(Exception):
    """Words its message itself and keeps what it was told."""

    def __init__(self, path: str, *, offset: int) -> None:
        super().__init__(f"{path} cannot be decoded at byte {offset}")
        self.path = path
        self.offset = offset


def not_found() -> Exception:
    return FileNotFoundError(2, "No such file or directory", "photos/5.jpg")


def busy() -> Exception:
    return HTTPError("host/5", 503, "busy", Message(), None)


def undecodable() -> Exception:
    return UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")


def torn() -> Exception:
    return DecodeError("photos/5.jpg", offset=17)


@pytest.mark.parametrize(
    ("make_error", "names"),
    [
        (not_found, ("errno", "strerror", "filename")),
        (busy, ("code", "msg", "reason", "url", "filename")),
        (undecodable, ("encoding", "object", "start", "end", "reason")),
        (torn, ("path", "offset")),
    ],
)
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_an_exception_keeps_its_type_and_attributes(method: str, make_error: Any, names: Any) -> None:
    """Row 26: torch raises a RuntimeError or a new exception without ``filename`` or ``code``."""

    def fail(index: int) -> int:
        if index == 5:
            raise make_error()
        return index

    loader = stoker.DataLoader(Made(fail), batch_size=4, num_workers=2, multiprocessing_context=method)
    _, caught, _ = steps(loader)
    error = make_error()
    assert type(caught) is type(error)
    assert caught.args == error.args
    assert str(caught) == str(error)
    assert [getattr(caught, name) for name in names] == [getattr(error, name) for name in names]
    assert "dataset index 5" in told(caught)
    assert isinstance(caught.__cause__, stoker.errors.WorkerTraceback)
    assert "in fail" in str(caught.__cause__)
