"""Runs over iterable datasets that are cut anywhere: as many streams go on where they were; other numbers if the dataset can."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stoker
from tests.compat.compare import seed_everything
from tests.resume import streams
from tests.resume.datasets import Deaths
from tests.resume.runs import assert_batches, copied, through_json

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


def running(
    kind: str, length: int, folder: Path | None = None, deaths: tuple[int, ...] = (), **how: Any
) -> Any:
    known = None if folder is None else Deaths(folder, deaths)
    dataset = streams.KINDS[kind](length, known)
    if how.get("num_workers") and how.get("executor") is None:
        how["multiprocessing_context"] = "fork"
    return stoker.DataLoader(dataset, **how)


def whole(kind: str, length: int, epochs: int = 1, **how: Any) -> list[Any]:
    seed_everything(7)
    with running(kind, length, **how) as loader:
        return [copied(batch) for _ in range(epochs) for batch in loader]


def stretch(loader: Any, state: Any, batches: int | None) -> tuple[list[Any], Any]:
    """Take a loader up at a state, for some batches or to the end of the epoch, and its state after them."""
    if state is not None:
        loader.load_state_dict(state)
    iterator = iter(loader)
    got = [copied(batch) for batch in (iterator if batches is None else itertools.islice(iterator, batches))]
    return got, through_json(loader.state_dict())


@settings(max_examples=80, derandomize=True)
@given(
    kind=st.sampled_from(streams.SIMPLE),
    length=st.integers(1, 40),
    batch_size=st.integers(1, 7) | st.none(),
    drop_last=st.booleans(),
    every=st.integers(0, 4),
    data=st.data(),
)
def test_without_workers(
    kind: str, length: int, batch_size: int | None, drop_last: bool, every: int, data: st.DataObject
) -> None:
    how: dict[str, Any] = {"batch_size": batch_size, "drop_last": drop_last and batch_size is not None}
    expected = whole(kind, length, **how)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(expected)), min_size=1, max_size=3)))
    got, state = [], None
    for number, (start, end) in enumerate(itertools.pairwise([0, *cuts, None])):
        seed_everything(7 + 100 * number)
        loader = running(kind, length, snapshot_every_n_steps=every, **how)
        more, state = stretch(loader, state, None if end is None else end - (start or 0))
        got += more
    assert_batches(expected, got)


@settings(max_examples=25, derandomize=True)
@given(
    kind=st.sampled_from(streams.SIMPLE),
    length=st.integers(4, 40),
    batch_size=st.integers(1, 5) | st.none(),
    workers=st.integers(1, 3),
    threads=st.booleans(),
    every=st.integers(0, 4),
    persistent=st.booleans(),
    data=st.data(),
)
def test_as_many_workers(
    kind: str,
    length: int,
    batch_size: int | None,
    workers: int,
    threads: bool,
    every: int,
    persistent: bool,
    data: st.DataObject,
) -> None:
    """Workers die, too. Threads share generators, so that only values are compared, and the dataset: a state is its iterator's."""
    if threads:
        kind = "plain" if kind in ("generating", "itself") else "placed"
    how: dict[str, Any] = {"batch_size": batch_size, "num_workers": workers}
    expected = whole(kind, length, **how)
    cut = data.draw(st.integers(0, len(expected)))
    deaths = (
        () if threads else tuple(data.draw(st.lists(st.integers(0, length - 1), max_size=2, unique=True)))
    )
    how |= {"snapshot_every_n_steps": every, "persistent_workers": persistent}
    if threads:
        how["executor"] = "thread"
    with TemporaryDirectory() as folder:
        got, state = [], None
        for number, size in enumerate([cut, None]):
            seed_everything(7 + 100 * number)
            with running(kind, length, Path(folder), deaths, **how) as loader:
                more, state = stretch(loader, state, size)
                got += more
    if threads:
        expected, got = ([batch["value"] for batch in batches] for batches in (expected, got))
    assert_batches(expected, got)


@pytest.mark.parametrize("kind", streams.SIMPLE)
def test_one_worker_is_as_none(kind: str) -> None:
    expected = whole(kind, 20, batch_size=3)
    got, state = [], None
    for number, (workers, size) in enumerate([(0, 2), (1, 2), (0, None)]):
        seed_everything(7 + 100 * number)
        with running(kind, 20, batch_size=3, num_workers=workers) as loader:
            more, state = stretch(loader, state, size)
            got += more
    assert_batches(expected, got)


@pytest.mark.parametrize("cut", [3, 7])
@pytest.mark.parametrize("kind", ["plain", "generating", "placed", "itself"])
def test_out_of_order(kind: str, cut: int) -> None:
    """Every stream goes on where it was, whichever was ahead."""
    expected = whole(kind, 30, batch_size=3, num_workers=2)
    got, state = [], None
    for number, size in enumerate([cut, None]):
        seed_everything(7 + 100 * number)
        how: dict[str, Any] = {"num_workers": 2, "in_order": number == 1 and cut == 3}
        with running(kind, 30, batch_size=3, **how) as loader:
            more, state = stretch(loader, state, size)
            got += more
    assert_batches(expected, got, ordered=False)


@pytest.mark.parametrize("workers", [0, 2])
def test_datasets_that_count_epochs_go_on_counting(workers: int) -> None:
    """Workers must persist for that. The state is from between two epochs, or from within one."""
    how: dict[str, Any] = {"batch_size": 4, "num_workers": workers, "persistent_workers": workers > 0}
    seed_everything(7)
    with running("generating", 30, **how) as loader:
        epochs = [[batch["epoch"].tolist() for batch in loader] for _ in range(4)]
    assert [epoch[0][0] for epoch in epochs] == [0, 1, 2, 3]
    with running("generating", 30, **how) as first:
        list(first)
        between = through_json(first.state_dict())
        iterator = iter(first)
        next(iterator)
        within = through_json(first.state_dict())
        del iterator
    with running("generating", 30, **how) as second:
        second.load_state_dict(between)
        assert [[batch["epoch"].tolist() for batch in second] for _ in range(2)] == epochs[1:3]
    with running("generating", 30, **how) as third:
        third.load_state_dict(within)
        assert [[batch["epoch"].tolist() for batch in third] for _ in range(2)] == [epochs[1][1:], epochs[2]]


@settings(max_examples=15, derandomize=True)
@given(
    ways=st.lists(st.integers(0, 3), min_size=2, max_size=4),
    cuts=st.lists(st.integers(0, 5), min_size=3, max_size=3),
    batch_size=st.integers(1, 5),
)
def test_other_worker_counts_where_the_dataset_can_re_shard(
    ways: list[int], cuts: list[int], batch_size: int
) -> None:
    got, state = [], None
    for number, workers in enumerate(ways):
        last = number == len(ways) - 1
        with running("spans", 50, batch_size=batch_size, num_workers=workers) as loader:
            more, state = stretch(loader, state, None if last else cuts[number])
            got += [value for batch in more for value in batch["value"].tolist()]
            if state["finished"]:
                break
    assert sorted(got) == list(range(50))


@pytest.mark.parametrize("kind", streams.SIMPLE)
def test_other_worker_counts_are_refused_otherwise(kind: str) -> None:
    with running(kind, 20, batch_size=2, num_workers=2) as loader:
        _, state = stretch(loader, None, 3)
    other = running(kind, 20, batch_size=2)
    with pytest.raises(ValueError, match=r"2 stream.*num_workers=2.*__stoker_reshard__"):
        other.load_state_dict(state)
    assert len(list(other)) == 10


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["generating", "both", "itself"])
def test_a_state_is_not_changed_by_what_follows(kind: str, workers: int) -> None:
    """Datasets may return what they go on changing. A run that was taken up says what one that was not says at the same place."""
    how: dict[str, Any] = {"batch_size": 2, "num_workers": workers, "persistent_workers": workers > 0}
    with running(kind, 40, **how) as loader:
        iterator = iter(loader)
        states = []
        for _ in range(6):
            next(iterator)
            state = loader.state_dict()
            states.append((state, copy.deepcopy(state)))
        del iterator
    assert all(state == kept for state, kept in states)
    with running(kind, 40, **how) as loader:
        loader.load_state_dict(states[2][0])
        assert loader.state_dict() == states[2][1]
        iterator = iter(loader)
        for state, _ in states[3:]:
            next(iterator)
            assert loader.state_dict() == state
        del iterator


class Opened(streams.Generating):
    """Says how often it was opened."""

    opened = 0

    def __iter__(self) -> Any:
        self.opened += 1
        for sample in super().__iter__():
            yield sample | {"opened": self.opened}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_is_opened_once(workers: int) -> None:
    def running() -> Any:
        context = "fork" if workers else None
        return stoker.DataLoader(
            Opened(20), batch_size=2, num_workers=workers, multiprocessing_context=context
        )

    with running() as loader:
        batches, state = stretch(loader, None, 3)
    with running() as loader:
        more, _ = stretch(loader, state, None)
    assert {count for batch in batches + more for count in batch["opened"].tolist()} == {1}
