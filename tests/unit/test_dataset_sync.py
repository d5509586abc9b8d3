"""Revisions from the parent's side to the worker's, without processes: what each worker lacks arrives, and nothing else."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import stoker
from stoker._runtime.dataset_sync import sender as module
from stoker._runtime.dataset_sync.receiver import RevisionReceiver
from stoker._runtime.dataset_sync.sender import RevisionSender
from stoker._runtime.pool.loader_stats import LoaderStats
from stoker._runtime.protocol import status_page
from stoker._runtime.scheduler.slots import SlotState, SlotTable
from stoker._runtime.transport.arena import Arena
from tests.unit.test_snapshot import Rows


class Pair:
    """A parent's dataset, and copies of it as workers have them."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.slots = SlotTable()
        self.arena = Arena()
        self.control = [0] * status_page.WORDS
        self.stats = LoaderStats("train")
        self.shipped = copy.deepcopy(dataset)
        self.revisions = RevisionSender(dataset, self.slots, self.arena, forks=False)

    def worker(self) -> tuple[Any, RevisionReceiver]:
        """A worker that starts from the pickled spec."""
        return copy.deepcopy(self.shipped), RevisionReceiver(
            self.arena.fd, self.arena.stride, self.control, 0
        )

    def iterate(self) -> bool:
        """What ``iter()`` does."""
        fit = self.revisions.announce(self.stats)
        self.control[status_page.REVISION] = self.revisions.word
        self.revisions.give_back()
        return fit


@pytest.fixture
def opened() -> Iterator[list[Pair]]:
    pairs: list[Pair] = []
    yield pairs
    while pairs:  # pytest keeps the list for a while
        pairs.pop().arena.close()


def pair_of(opened: list[Pair], **attributes: Any) -> Pair:
    opened.append(Pair(Rows(**attributes)))
    return opened[-1]


def test_nothing_changed_costs_no_slot(opened: list[Pair]) -> None:
    pair = pair_of(opened, epoch=0)
    assert pair.iterate()
    assert (pair.revisions.word, len(pair.slots)) == (0, 0)


def test_each_worker_gets_what_it_lacks(opened: list[Pair]) -> None:
    pair = pair_of(opened, epoch=0, transform="a", inner=Rows(epoch=0, gone=1), own=0)
    steady, steady_reviser = pair.worker()
    idle, idle_reviser = pair.worker()
    pair.dataset.epoch = 1
    pair.dataset.own = 1
    pair.iterate()
    steady_reviser.catch_up(steady)
    assert (steady.epoch, steady.transform) == (1, "a")
    steady.own = "mine"
    pair.dataset.epoch, pair.dataset.transform, pair.dataset.inner.epoch = 2, torch.arange(3), 5
    del pair.dataset.inner.gone
    pair.iterate()
    late, late_reviser = pair.worker()
    for worker, reviser in ((steady, steady_reviser), (idle, idle_reviser), (late, late_reviser)):
        reviser.catch_up(worker)
        reviser.catch_up(worker)
        reviser.raise_error()
        assert (worker.epoch, worker.transform.tolist(), vars(worker.inner)) == (2, [0, 1, 2], {"epoch": 5})
    assert (steady.own, idle.own, late.own) == ("mine", 1, 1)


def test_what_was_replaced_is_not_kept_and_one_slot_is_busy(opened: list[Pair]) -> None:
    pair = pair_of(opened, epoch=0, note="")
    pair.dataset.note = "x"
    pair.iterate()
    sizes = set()
    for epoch in range(10, 99):
        pair.dataset.epoch = epoch
        pair.iterate()
        length = int.from_bytes(pair.arena._mapping(pair.revisions.word & 0xFFFFFFFF, 8).view[:8], "little")
        sizes.add(length)
    assert max(sizes) - min(sizes) < 16
    states = [pair.slots.state(index) for index in range(len(pair.slots))]
    assert states.count(SlotState.BUSY) == 1
    assert len(states) <= 2
    late, reviser = pair.worker()
    reviser.catch_up(late)
    assert (late.epoch, late.note) == (98, "x")


def test_datasets_that_workers_have_travel_as_references(opened: list[Pair]) -> None:
    big = Rows(rows=np.zeros(100_000), epoch=0)
    pair = pair_of(opened, stages=[Rows(epoch=0), big], current=None, me=None)
    worker, reviser = pair.worker()
    pair.dataset.current, pair.dataset.me = big, [pair.dataset.__len__]
    pair.iterate()
    pair.dataset.stages = None
    big.epoch = 7
    pair.iterate()
    late, late_reviser = pair.worker()
    for each, its in ((worker, reviser), (late, late_reviser)):
        theirs = each.stages[1]
        its.catch_up(each)
        assert each.current is theirs
        assert (each.current.epoch, each.stages) == (7, None)
        assert each.me[0].__self__ is each


def test_what_two_attributes_share_stays_shared(opened: list[Pair]) -> None:
    pair = pair_of(opened, a=None, b=None)
    worker, reviser = pair.worker()
    pair.dataset.a = [1]
    pair.dataset.b = {"a": pair.dataset.a}
    pair.iterate()
    reviser.catch_up(worker)
    assert worker.b["a"] is worker.a


def test_a_new_dataset_is_followed_in_late_workers_too(opened: list[Pair]) -> None:
    pair = pair_of(opened, inner=Rows(epoch=0))
    for number in range(3):
        pair.dataset.inner = Rows(epoch=number)
        pair.iterate()
        pair.dataset.inner.epoch = 10 + number
        pair.iterate()
    late, reviser = pair.worker()
    reviser.catch_up(late)
    reviser.raise_error()
    assert late.inner.epoch == 12


def test_what_cannot_be_pickled_is_warned_of_once_and_the_rest_arrives(
    opened: list[Pair], caplog: pytest.LogCaptureFixture
) -> None:
    pair = pair_of(opened, inner=Rows(handle=None), epoch=0)
    worker, reviser = pair.worker()
    for epoch in (1, 2):
        pair.dataset.inner.handle = threading.Lock()
        pair.dataset.epoch = epoch
        assert pair.iterate()
    reviser.catch_up(worker)
    assert (worker.epoch, worker.inner.handle) == (2, None)
    with open(__file__) as pair.dataset.inner.handle:
        pair.iterate()
    assert len(caplog.messages) == 1
    assert "dataset.inner.handle has changed to a lock that cannot be sent" in caplog.messages[0]
    assert "loader.refresh()" in caplog.messages[0]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (np.zeros(5000, np.uint8), "more than"),
        (torch.zeros(5000, dtype=torch.uint8), "more than"),
        ("x" * 5000, "more than"),
        (torch.zeros(2).share_memory_(), "descriptors"),
    ],
)  # fmt: skip
def test_what_takes_new_workers(
    value: Any,
    why: str,
    opened: list[Pair],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "LIMIT_BYTES", 4096)
    caplog.set_level(logging.INFO, "stoker")
    pair = pair_of(opened, value=None)
    pair.dataset.value = value
    assert not pair.iterate()
    assert why in caplog.text


def test_shared_data_is_never_copied(opened: list[Pair], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "stoker")
    for value in (list(map(str, range(9000))), np.arange(9000)):
        pair = pair_of(opened, value=None)
        pair.dataset.value = stoker.share(value)
        assert not pair.iterate()
    assert ["shared" in message for message in caplog.messages] == [True, True]


def test_many_small_ones_that_come_to_much(opened: list[Pair], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT_BYTES", 4096)
    pair = pair_of(opened)
    fits = []
    for number in range(6):
        setattr(pair.dataset, f"value_{number}", "x" * 1000)
        fits.append(pair.iterate())
    assert fits == [True, True, True, False, False, False]


class Refuses:
    """Cannot be loaded again."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_what_cannot_be_loaded_is_raised_once_by_name(opened: list[Pair]) -> None:
    pair = pair_of(opened, epoch=0, transform=None)
    worker, reviser = pair.worker()
    pair.dataset.transform = Refuses()
    pair.iterate()
    pair.dataset.epoch = 1
    pair.iterate()
    reviser.catch_up(worker)
    with pytest.raises(ValueError, match="no number") as caught:
        reviser.raise_error()
    assert "dataset.transform" in caught.value.__notes__[0]
    reviser.raise_error()
    assert (worker.epoch, worker.transform) == (1, None)


def test_a_copy_that_lacks_a_dataset_goes_without(opened: list[Pair]) -> None:
    pair = pair_of(opened, cache=Rows(epoch=0), epoch=0)
    worker, reviser = pair.worker()
    worker.cache = None
    pair.dataset.cache.epoch = pair.dataset.epoch = 1
    pair.iterate()
    reviser.catch_up(worker)
    reviser.raise_error()
    assert vars(worker) == {"cache": None, "epoch": 1}


def test_a_reader_that_was_overtaken_reads_again(opened: list[Pair]) -> None:
    pair = pair_of(opened, epoch=0)
    worker, _ = pair.worker()

    class Overtaking(list[int]):
        """The parent moves on between a reader's first look at the word and its second, and the old slot is used again."""

        def __init__(self) -> None:
            super().__init__(pair.control)
            self.looks = 0

        def __getitem__(self, at: Any) -> Any:
            self.looks += 1
            if self.looks in (2, 5):
                pair.dataset.epoch += 1
                pair.revisions.announce(pair.stats)
                self[status_page.REVISION] = pair.revisions.word
                pair.revisions.give_back()
                pair.arena.put(pair.slots.acquire().index, b"\xff" * 64)
            return super().__getitem__(at)

    pair.dataset.epoch = 1
    pair.iterate()
    control = Overtaking()
    reviser = RevisionReceiver(pair.arena.fd, pair.arena.stride, control, 0)
    reviser.catch_up(worker)
    reviser.raise_error()
    assert (worker.epoch, control.looks) == (3, 8)


def test_an_interrupt_before_the_announcement_repeats_it(
    opened: list[Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = pair_of(opened, epoch=0)
    worker, reviser = pair.worker()
    pair.dataset.epoch = 1

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pair.arena, "put", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pair.iterate()
    pair.iterate()
    reviser.catch_up(worker)
    assert worker.epoch == 1
    assert [pair.slots.state(index) for index in range(len(pair.slots))].count(SlotState.BUSY) == 1


class Restless:
    """Can be pickled now and then: another thread is at work on it."""

    def __init__(self, answers: list[bool]) -> None:
        self.answers = answers

    def __reduce__(self) -> Any:
        if not self.answers.pop(0):
            raise RuntimeError("dictionary changed size during iteration")
        return int, ()


def test_what_keeps_changing_while_it_is_packed_takes_new_workers(
    opened: list[Pair], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="stoker")
    pair = pair_of(opened, box=None)
    pair.dataset.box = Restless([False, True, False])
    assert not pair.iterate()
    assert "keeps changing while it is packed (RuntimeError: dictionary changed size" in caplog.text
