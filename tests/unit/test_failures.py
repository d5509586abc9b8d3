"""Exceptions in transit: type, args, attributes and notes where they can travel, always the worker's traceback."""

from __future__ import annotations

import pickle
import threading
import traceback
from typing import Any

import pytest
import torch

from stoker._runtime.protocol import failures
from stoker.errors import WorkerFailure, WorkerTraceback


class Worded(ValueError):
    """Words its message from an argument: args are not what ``__init__`` wants."""

    def __init__(self, shard: int) -> None:
        super().__init__(f"bad shard {shard}")
        self.shard = shard


class Demanding(Exception):
    """Cannot be called with its args."""

    def __init__(self, code: int, *, host: str) -> None:
        super().__init__(f"{host} said {code}")
        self.code = code
        self.host = host


class Reducing(Exception):
    """Says itself how it is built again."""

    def __init__(self, left: int, right: int) -> None:
        super().__init__(left + right)
        self.left, self.right = left, right

    def __reduce__(self) -> Any:
        return Reducing, (self.left, self.right)


class Unloadable:
    """Pickles, but does not load again."""

    def __reduce__(self) -> Any:
        return _refuse, ()


class Hostile(Exception):
    """Nothing about it works."""

    def __str__(self) -> str:
        raise RuntimeError("no text for you")

    def __reduce__(self) -> Any:
        raise RuntimeError("no pickle for you")


def _refuse() -> None:
    raise RuntimeError("cannot be loaded")


def caught(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as again:
        return again


def sent(error: BaseException, worker: int = 3) -> BaseException:
    """Through bytes, as to another process."""
    return failures.unpack(pickle.loads(pickle.dumps(failures.pack(caught(error), worker))))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("wrong", 3),
        KeyError("key"),
        KeyError(("a", 1)),
        OSError(2, "No such file", "data.bin"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        StopIteration(5),
        NotImplementedError(),
        ExceptionGroup("several", [ValueError("a"), KeyError("b")]),
        Worded(7),
        Demanding(404, host="mirror"),
        Reducing(2, 3),
    ],
    ids=lambda error: type(error).__name__,
)
def test_type_args_text_and_attributes_arrive(error: Exception) -> None:
    got = sent(error)
    assert type(got) is type(error)
    assert repr(got.args) == repr(error.args)
    assert str(got) == str(error)
    assert got.__dict__ == error.__dict__


def test_file_errors_keep_their_fields() -> None:
    got = sent(FileNotFoundError(2, "No such file", "data.bin"))
    assert isinstance(got, FileNotFoundError)
    assert (got.errno, got.filename) == (2, "data.bin")


def test_the_workers_traceback_is_the_cause() -> None:
    got = sent(ValueError("wrong"), worker=5)
    cause = got.__cause__
    assert isinstance(cause, WorkerTraceback)
    assert "Caught ValueError in DataLoader worker process 5." in cause.text
    assert "in caught" in cause.text
    shown = "".join(traceback.format_exception(got))
    assert shown.index("in caught") < shown.index("direct cause")


def test_the_cause_of_the_cause_is_in_the_text() -> None:
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("outer") from inner
    except ValueError as outer:
        got = failures.unpack(failures.pack(outer, 0))
    assert "KeyError: 'inner'" in str(got.__cause__)


def test_notes_arrive() -> None:
    error = ValueError("wrong")
    error.add_note("stoker: while fetching dataset index 7")
    assert sent(error).__notes__ == ["stoker: while fetching dataset index 7"]


def test_tensors_in_args_and_attributes_arrive() -> None:
    error = ValueError("wrong", torch.arange(3))
    error.rows = torch.ones(2)  # type: ignore[attr-defined]
    got: Any = sent(error)
    assert got.args[1].tolist() == [0, 1, 2]
    assert got.rows.tolist() == [1, 1]


@pytest.mark.parametrize("value", [threading.Lock(), Unloadable()], ids=["unpicklable", "unloadable"])
def test_an_attribute_that_cannot_travel_stays_behind_alone(value: Any) -> None:
    error = Worded(7)
    error.handle = value  # type: ignore[attr-defined]
    got = sent(error)
    assert type(got) is Worded
    assert got.args == ("bad shard 7",)
    assert got.__dict__ == {"shard": 7}


def test_a_local_class_travels_by_value() -> None:
    class Local(KeyError):
        def describe(self) -> str:
            return f"local {self.args[0]}"

    got: Any = sent(Local("x"))
    assert type(got).__name__ == "Local"
    assert got.describe() == "local x"
    assert isinstance(got, KeyError)


def test_an_error_that_cannot_travel_is_described() -> None:
    got = sent(ValueError(threading.Lock()))
    assert type(got) is WorkerFailure
    assert str(got).startswith("ValueError: <unlocked _thread.lock")
    assert "in caught" in str(got.__cause__)


def test_nothing_an_exception_does_makes_packing_fail() -> None:
    packed = failures.pack(caught(Hostile()), 0)
    assert (packed.name, packed.text) == ("Hostile", "<no text>")
    assert type(failures.unpack(packed)) is Hostile


def test_an_error_that_does_not_load_in_the_parent_is_described() -> None:
    packed = failures.PackedError(b"not a pickle", "ValueError", "wrong", "Traceback", 1)
    got = failures.unpack(packed)
    assert type(got) is WorkerFailure
    assert str(got) == "ValueError: wrong"
