"""Exceptions in the dataset: type, args, attributes, the worker's traceback, the index; then it goes on."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from tests.compat.compare import BOTH, StokerLoader, mentions_index
from tests.compat.samples import FAR, CustomError, Endless

WORKERS = (0, 1, 2)


class Failing(Endless):
    """Raises what `errors` holds for an index."""

    def __init__(self, errors: dict[int, Any]) -> None:
        self.errors = errors

    def __getitem__(self, index: int) -> Any:
        if index in self.errors:
            raise self.errors[index]
        return super().__getitem__(index)


def story(loader: Any) -> list[Any]:
    """Batches and errors in the order in which next() gives them, up to the end of the epoch."""
    steps: list[Any] = []
    iterator = iter(loader)
    while True:
        try:
            steps.append(next(iterator))
        except StopIteration:
            return steps
        except Exception as error:
            steps.append(error)


def only_error(steps: list[Any]) -> BaseException:
    errors = [step for step in steps if isinstance(step, BaseException)]
    assert len(errors) == 1
    return errors[0]


ERRORS = [
    ValueError("plain words", 3),
    KeyError("missing"),
    IndexError("no such row"),
    NotImplementedError(),
    ZeroDivisionError("division"),
    FileNotFoundError(2, "No such file", "some/file.jpg"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    AssertionError("must hold"),
    CustomError(41, path="a/b"),
]


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_type_args_and_attributes_survive(error: Exception, num_workers: int) -> None:
    steps = story(StokerLoader(Failing({FAR: error}), sampler=[1, FAR, 2], num_workers=num_workers))
    caught = only_error(steps)
    assert type(caught) is type(error)
    assert caught.args == error.args
    for name in ("filename", "errno", "code", "path", "reason", "start"):
        assert getattr(caught, name, None) == getattr(error, name, None)
    assert mentions_index(caught, FAR)
    error.__traceback__ = None  # it is this module's for good, and its frames have the loader


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("batch_size", [1, 2, None])
def test_the_iterator_goes_on_as_torchs_does(batch_size: int | None, num_workers: int) -> None:
    def outline(loader_class: Any) -> list[Any]:
        dataset = Failing({5: ValueError("five"), 6: KeyError("six"), 10: OSError("last")})
        loader = loader_class(dataset, sampler=range(11), batch_size=batch_size, num_workers=num_workers)
        return [type(step) if isinstance(step, Exception) else step.tolist() for step in story(loader)]

    theirs, ours = (outline(loader_class) for loader_class in BOTH)
    assert ours == theirs


@pytest.mark.parametrize("num_workers", WORKERS)
def test_an_error_in_every_batch_is_an_error_for_every_batch(num_workers: int) -> None:
    dataset = Failing({index: ValueError(f"row {index}") for index in range(12)})
    steps = story(StokerLoader(dataset, sampler=range(12), batch_size=2, num_workers=num_workers))
    assert [str(step) for step in steps] == [f"row {index}" for index in range(0, 12, 2)]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_the_workers_traceback_is_the_cause(num_workers: int) -> None:
    dataset = Failing({FAR: ValueError("words")})
    caught = only_error(story(StokerLoader(dataset, sampler=[FAR], num_workers=num_workers)))
    assert caught.__cause__ is not None
    told = "".join(traceback.format_exception(caught.__cause__))
    assert "__getitem__" in told
    assert "raise self.errors[index]" in told


class Chained(Endless):
    def __getitem__(self, index: int) -> Any:
        try:
            raise KeyError("the root of it")
        except KeyError as root:
            raise ValueError("what came of it") from root


@pytest.mark.parametrize("num_workers", WORKERS)
def test_the_roots_of_an_error_are_still_told(num_workers: int) -> None:
    caught = only_error(story(StokerLoader(Chained(), sampler=[FAR], num_workers=num_workers)))
    told = "".join(traceback.format_exception(caught))
    assert "the root of it" in told
    assert "what came of it" in told


def make_local_error() -> Exception:
    class LocalError(Exception):
        pass

    return LocalError("nobody can import me")


class HoldsAGenerator(Exception):
    """Cannot be pickled as it stands."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.rows = (row for row in [1])


class NeedsTwo(Exception):
    """Its args do not fit its constructor: unpickling it naively fails."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


class Awkward(Endless):
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __getitem__(self, index: int) -> Any:
        if self.kind == "local":
            raise make_local_error()
        if self.kind == "generator":
            raise HoldsAGenerator("holds a generator")
        raise NeedsTwo(1, 2)


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize(
    ("kind", "words"),
    [("local", "nobody can import me"), ("generator", "holds a generator"), ("two", "1 and 2")],
)
def test_errors_that_do_not_travel_well_still_arrive(kind: str, words: str, num_workers: int) -> None:
    """torch hangs or raises an unrelated TypeError here."""
    loader = StokerLoader(Awkward(kind), sampler=[FAR, FAR + 1], num_workers=num_workers)
    steps = story(loader)
    assert len(steps) == 2
    for index, caught in zip((FAR, FAR + 1), steps, strict=True):
        assert isinstance(caught, Exception)
        assert words in str(caught)
        assert mentions_index(caught, index)


class Group(Endless):
    def __getitem__(self, index: int) -> Any:
        raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])


@pytest.mark.parametrize("num_workers", WORKERS)
def test_exception_groups(num_workers: int) -> None:
    caught = only_error(story(StokerLoader(Group(), sampler=[FAR], num_workers=num_workers)))
    assert isinstance(caught, ExceptionGroup)
    assert [type(inner) for inner in caught.exceptions] == [ValueError, KeyError]


def failing_collate(rows: list[Any]) -> Any:
    raise LookupError("cannot collate")


@pytest.mark.parametrize("num_workers", WORKERS)
def test_a_collate_function_that_raises_names_the_rows(num_workers: int) -> None:
    loader = StokerLoader(Endless(), sampler=[FAR], collate_fn=failing_collate, num_workers=num_workers)
    caught = only_error(story(loader))
    assert type(caught) is LookupError
    assert mentions_index(caught, FAR)


class BulkFailing(Dataset[Any]):
    def __len__(self) -> int:
        return FAR * 2

    def __getitem__(self, index: int) -> Any:
        return index

    def __getitems__(self, indices: list[int]) -> Any:
        raise PermissionError("not yours")


@pytest.mark.parametrize("num_workers", WORKERS)
def test_a_getitems_that_raises_names_the_rows(num_workers: int) -> None:
    caught = only_error(story(StokerLoader(BulkFailing(), sampler=[FAR], num_workers=num_workers)))
    assert type(caught) is PermissionError
    assert mentions_index(caught, FAR)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_error_carries_no_tensor_of_the_worker(num_workers: int) -> None:
    """Attributes that are tensors arrive by value and stay usable."""
    error = ValueError("with a tensor")
    error.tensor = torch.arange(3)  # type: ignore[attr-defined]
    caught = only_error(story(StokerLoader(Failing({FAR: error}), sampler=[FAR], num_workers=num_workers)))
    assert torch.equal(caught.tensor, torch.arange(3))  # type: ignore[attr-defined]
