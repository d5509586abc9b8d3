"""The counts of a state: edited ones are refused with what differs, and every state that a loader makes is loaded."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, Dataset, IterableDataset, RandomSampler, Sampler

import stoker
from tests.compat.compare import seed_everything
from tests.resume.runs import through_json

SIZE = 64


def plain(size: int = SIZE, **arguments: Any) -> Any:
    return stoker.DataLoader(range(size), **{"batch_size": 4, "shuffle": True, **arguments})  # type: ignore[arg-type]


def state_after(loader: Any, taken: int) -> dict[str, Any]:
    iterator = iter(loader)
    for _ in range(taken):
        next(iterator)
    return through_json(loader.state_dict())


def resized(taken: int) -> dict[str, Any]:
    """Three batches of 4 samples, and then batches of 6."""
    loader = plain(batch_size=6)
    loader.load_state_dict(state_after(plain(), 3))
    return state_after(loader, taken)


COUNTS = "it has {} 'batches' with {} 'samples'{}, and its 'receipt' has 5 with 20"
EDITS: list[tuple[dict[str, Any], str]] = [
    ({"batches": 17}, "17 'batches' of 4 cannot have 20 'samples', of the 64 that its sampler had"),
    ({"batches": 4}, "4 'batches' of 4 cannot have 20 'samples'"),
    ({"batches": 16}, "16 'batches' of 4 cannot have 20 'samples'"),
    ({"samples": 17}, "5 'batches' of 4 cannot have 17 'samples'"),
    ({"samples": 5}, "5 'batches' of 4 cannot have 5 'samples'"),
    ({"batches": 16, "samples": 64}, COUNTS.format(16, 64, "")),
    ({"batches": 4, "samples": 16}, COUNTS.format(4, 16, "")),
    ({"ahead": [5, 9]}, COUNTS.format(5, 20, " and 2 'ahead'")),
    ({"ahead": [4]}, "'ahead' names batches that 'batches' has counted already"),
    ({"ahead": [30]}, "'ahead' names batch 30, and the epoch has 16 batches"),
    ({"not_in_receipt": 2}, COUNTS.format(5, 20, "") + " and leaves out 2"),
    ({"resized_at": [[1, 9]]}, "5 'batches' of 4 after 1 that had 9 cannot have 20 'samples'"),
    ({"resized_at": [[6, 20]]}, "5 'batches' of 4 after 6 that had 20 cannot have 20 'samples'"),
]


@pytest.mark.parametrize(("edits", "words"), EDITS, ids=[str(edits) for edits, _ in EDITS])
def test_edited_counts_are_refused(edits: dict[str, Any], words: str) -> None:
    state = {**state_after(plain(), 5), **edits}
    loader = plain()
    before = loader.state_dict()
    with pytest.raises(ValueError, match=f"this state is damaged: .*{words}"):
        loader.load_state_dict(state)
    assert loader.state_dict() == before


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ({"batches": 5}, "5 'batches' of 6 after 3 that had 12 cannot have 18 'samples'"),
        ({"samples": 17}, "4 'batches' of 6 after 3 that had 12 cannot have 17 'samples'"),
        ({"samples": 64}, "4 'batches' of 6 after 3 that had 12 cannot have 64 'samples'"),
        ({"ahead": [12]}, "'ahead' names batch 12, and the epoch has 12 batches"),
    ],
)
def test_counts_are_compared_with_the_size_since_it_changed(edits: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        plain(batch_size=6).load_state_dict({**resized(1), **edits})


@pytest.mark.parametrize("name", ["receipt", "resized_at", "not_in_receipt"])
def test_a_state_without_what_its_counts_are_compared_with_is_loaded(name: str) -> None:
    """Earlier versions left it out."""
    state = state_after(plain(), 5)
    expected = plain()
    expected.load_state_dict(state)
    del state[name]
    loader = plain()
    loader.load_state_dict(state)
    assert torch.equal(torch.cat(list(loader)), torch.cat(list(expected)))


@pytest.mark.parametrize("edits", [{"batches": 4}, {"samples": 17}, {"samples": 5}])
def test_the_receipt_alone_tells_of_samples_that_are_gone(edits: dict[str, int]) -> None:
    state = state_after(plain(), 5)
    del state["resized_at"], state["not_in_receipt"]
    with pytest.raises(ValueError, match="and its 'receipt' has 5 with 20"):
        plain().load_state_dict({**state, **edits})


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(SIZE))


def test_streams_and_their_receipt_count_the_same_batches() -> None:
    state = state_after(stoker.DataLoader(Stream(), batch_size=4), 5)
    loader: Any = stoker.DataLoader(Stream(), batch_size=4)
    with pytest.raises(ValueError, match=r"it has 9 'batches' .* and its 'receipt' has 5"):
        loader.load_state_dict({**state, "batches": 9})
    loader.load_state_dict(state)
    assert len(list(loader)) == 11


class Faulty(Dataset[int]):
    """Every seventh sample is bad."""

    def __len__(self) -> int:
        return SIZE - 2

    def __getitem__(self, index: int) -> int:
        if index % 7 == 3:
            raise ValueError("bad")
        return index


class Unsized(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(SIZE - 1)


class Wrong(Unsized):
    """It says that it has more than it gives."""

    def __len__(self) -> int:
        return 2 * SIZE


class Uneven(Sampler[list[int]]):
    def __iter__(self) -> Iterator[list[int]]:
        yield from ([index] * (index % 3 + 1) for index in range(9))


def elastic(**arguments: Any) -> Any:
    sampler = stoker.ElasticDistributedSampler(range(SIZE), num_replicas=3, rank=1)
    return plain(shuffle=None, sampler=sampler, **arguments)


LOADERS: dict[str, Callable[[], Any]] = {
    "whole batches": plain,
    "a short last batch": lambda: plain(62),
    "no short batch": lambda: plain(62, drop_last=True),
    "one short batch": lambda: plain(3),
    "nothing": lambda: plain(0, shuffle=None),
    "single": lambda: plain(7, batch_size=None),
    "draws": lambda: plain(shuffle=None, sampler=RandomSampler(range(5), replacement=True, num_samples=14)),
    "bad samples left out": lambda: stoker.DataLoader(Faulty(), batch_size=4, on_bad_sample="skip"),
    "bad samples replaced": lambda: stoker.DataLoader(Faulty(), batch_size=4, on_bad_sample="replace"),
    "without length": lambda: plain(shuffle=None, sampler=Unsized()),
    "wrong length": lambda: plain(shuffle=None, sampler=Wrong()),
    "a list": lambda: plain(shuffle=None, sampler=[3, 1, 2, 5, 7]),
    "uneven": lambda: stoker.DataLoader(range(SIZE), batch_sampler=Uneven()),  # type: ignore[arg-type]
    "torch's batch sampler": lambda: stoker.DataLoader(
        range(SIZE),  # type: ignore[arg-type]
        batch_sampler=BatchSampler(RandomSampler(range(50)), 7, False),
    ),
    "keys of batches": lambda: stoker.DataLoader(
        torch.arange(SIZE),  # type: ignore[arg-type]
        batch_size=None,
        sampler=BatchSampler(RandomSampler(range(50)), 7, False),
    ),
    "elastic": elastic,
    "a stream": lambda: stoker.DataLoader(Stream(), batch_size=5),
}


@pytest.mark.parametrize("read_ahead", [0, 1])
@pytest.mark.parametrize("case", LOADERS)
def test_every_state_of_a_loader_is_loaded(case: str, read_ahead: int) -> None:
    """Before, behind each batch and at the end, and once more from the loader that went on with it."""
    running = LOADERS[case]()
    states = [running.state_dict()]
    states += [running.state_dict(read_ahead=read_ahead) for _ in running]
    states += [running.state_dict()]
    for state in states:
        other = LOADERS[case]()
        other.load_state_dict(through_json(state))
        for _ in itertools.islice(other, 2):
            LOADERS[case]().load_state_dict(through_json(other.state_dict(read_ahead=read_ahead)))


def test_errors_that_were_raised_are_counted() -> None:
    running: Any = stoker.DataLoader(Faulty(), batch_size=4)
    iterator = iter(running)
    for _ in range(16):
        with contextlib.suppress(ValueError):
            next(iterator)
        stoker.DataLoader(Faulty(), batch_size=4).load_state_dict(running.state_dict())


def test_a_batch_sampler_may_change_its_size_in_the_middle() -> None:
    """As in a warm-up of the batch size. Its samples are then not compared with any size."""
    running = plain()
    rows = []
    state: dict[str, Any] = {}
    for number, batch in enumerate(running):
        rows += batch.tolist()
        if number == 2:
            running.batch_sampler.batch_size = 9
        state = running.state_dict()
        plain().load_state_dict(state)
        if number == 4:
            break
    assert (state["samples"], state["resized_at"]) == (30, (None,))
    again = plain()
    again.load_state_dict(state)
    rest = [row for batch in again for row in batch.tolist()]
    assert sorted(rows + rest) == list(range(SIZE))


class Interrupting(Dataset[int]):
    """Ctrl-C comes once."""

    waiting = True

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> int:
        if index == 9 and self.waiting:
            self.waiting = False
            raise KeyboardInterrupt
        return index


def test_a_batch_that_an_interrupt_lost_is_counted() -> None:
    """As one without samples in the receipt; also when the epoch then goes on in batches of other sizes."""
    running: Any = stoker.DataLoader(Interrupting(), batch_size=4)
    iterator = iter(running)
    with pytest.raises(KeyboardInterrupt):
        list(iterator)
    next(iterator)
    state = through_json(running.state_dict())
    assert (state["batches"], state["receipt"][0].split()[3:5]) == (4, ["4", "12"])
    for size in (5, 3, 4):
        other: Any = stoker.DataLoader(Interrupting(), batch_size=size)
        other.dataset.waiting = False
        other.load_state_dict(state)
        state = state_after(other, 2)
    assert (state["batches"], state["samples"], state["not_in_receipt"]) == (10, 40, 0)


class Late(Dataset[int]):
    """One batch takes longer than those behind it."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> int:
        if index == 20:
            time.sleep(0.2)
        return index


@pytest.mark.parametrize("workers", [0, 2])
def test_states_of_batches_out_of_order_are_loaded_leg_after_leg(workers: int) -> None:
    """Without workers a batch that was handed over ahead may come next, until the sampler has passed over it."""

    def loader(number: int) -> Any:
        return stoker.DataLoader(
            Late(), batch_size=4, num_workers=number, in_order=False, executor="thread" if number else None
        )

    seed_everything(3)
    running = loader(2)
    rows: list[int] = []
    iterator = iter(running)
    for _ in range(8):
        rows += next(iterator).tolist()
    state = through_json(running.state_dict())
    running.close()
    while True:
        running = loader(workers)
        running.load_state_dict(state)
        batch = next(iter(running), None)
        if batch is None:
            break
        rows += batch.tolist()
        state = through_json(running.state_dict())
        running.close()
    assert sorted(rows) == list(range(SIZE))


def test_another_number_of_ranks_goes_on() -> None:
    state = state_after(elastic(), 2)
    for replicas in (2, 5, 1):
        sampler = stoker.ElasticDistributedSampler(range(SIZE), num_replicas=replicas, rank=0)
        loader = plain(batch_size=3, shuffle=None, sampler=sampler)
        loader.load_state_dict(state)
        state = state_after(loader, 1)
    assert state["batches"] == 5
