"""Faults that an adversarial reading of the loader found: each hung, leaked or gave wrong data once."""

from __future__ import annotations

import io
import logging
import os
import resource
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, Sampler, default_collate

import stoker
import stoker.errors


class Counting(Dataset[int]):
    """Eight integers; ``bad`` raises the exception it was given."""

    def __init__(self, bad: int = -1, error: BaseException | None = None) -> None:
        self.bad = bad
        self.error = error
        self.attachment: Any = None

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index == self.bad and self.error is not None:
            raise self.error
        return index


class Nested(Dataset[int]):
    """Every sample is a pass over a loader that the parent has used before."""

    def __init__(self, inner: stoker.DataLoader[int]) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return int(sum(batch.sum() for batch in self.inner)) + index


def values(loader: Any) -> list[int]:
    return [value for batch in loader for value in batch.tolist()]


def in_child(question: Any) -> str:
    """What ``question`` answers in a forked child."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = str(question())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with open(read) as answers:
        text = answers.read()
    os.waitpid(pid, 0)
    return text


@pytest.mark.parametrize("options", [{}, {"num_workers": 1, "executor": "thread"}])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interrupted_sample_costs_its_batch_only(options: dict[str, Any], error: BaseException) -> None:
    iterator = iter(stoker.DataLoader(Counting(2, error), batch_size=2, **options))
    assert next(iterator).tolist() == [0, 1]
    with pytest.raises(type(error)):
        next(iterator)
    assert values(iterator) == [4, 5, 6, 7]


def test_a_dataset_that_cannot_travel_is_refused_every_time() -> None:
    dataset = Counting()
    dataset.attachment = (number for number in range(3))
    loader = stoker.DataLoader(
        dataset, num_workers=2, persistent_workers=True, multiprocessing_context="spawn"
    )
    for _ in range(2):
        with pytest.raises(stoker.errors.UnsendableError, match=r"dataset\.attachment"):
            iter(loader)
    dataset.attachment = None
    assert values(loader) == list(range(8))
    loader.close()


def test_a_forked_child_starts_workers_of_its_own() -> None:
    with stoker.DataLoader(Counting(), num_workers=2, persistent_workers=True) as loader:
        assert values(loader) == list(range(8))

        def count() -> int:
            with loader:
                return len(values(loader))

        assert in_child(count) == "8"
        assert values(loader) == list(range(8))


def test_a_forked_child_cannot_take_the_parents_batches() -> None:
    iterator = iter(stoker.DataLoader(Counting(), num_workers=2))
    next(iterator)
    assert in_child(lambda: next(iterator)).startswith("LoaderClosed: this iterator's workers belong to")
    assert values(iterator) == list(range(1, 8))


def test_a_loader_used_before_works_inside_a_forked_worker() -> None:
    with stoker.DataLoader(Counting(), batch_size=4, num_workers=1, persistent_workers=True) as inner:
        assert values(inner) == list(range(8))
        outer = stoker.DataLoader(Nested(inner), num_workers=1, multiprocessing_context="fork")
        assert values(outer) == [28, 29, 30, 31]


def test_a_closed_loader_delivers_nothing_that_was_ready() -> None:
    loader = stoker.DataLoader(Counting(), num_workers=1, prefetch_factor=8, in_order=True)
    iterator = iter(loader)
    next(iterator)
    loader.close()
    with pytest.raises(stoker.errors.LoaderClosed):
        next(iterator)


class Keeper(IterableDataset[torch.Tensor]):
    """Keeps what it collated itself when its first stream ends, and shows it at the end of every later one."""

    kept: torch.Tensor | None = None

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(4):
            yield torch.full((3, 100, 100), number)
        if self.kept is None:
            self.kept = default_collate([torch.full((100, 100), 7) for _ in range(4)])
        else:
            yield self.kept[:3]


def test_what_a_dataset_keeps_at_the_end_of_its_stream_stays_its_own() -> None:
    with stoker.DataLoader(Keeper(), batch_size=None, num_workers=1, persistent_workers=True) as loader:
        seen = [[int(batch.min()) for batch in loader] for _ in range(3)]
    assert seen == [[0, 1, 2, 3], [0, 1, 2, 3, 7], [0, 1, 2, 3, 7]]


def test_an_index_that_cannot_travel_fails_in_its_turn() -> None:
    batches: list[list[Any]] = [[0], [1], [2], [3], [4], [lambda: 0], [6], [7]]
    iterator = iter(stoker.DataLoader(Counting(), num_workers=2, batch_sampler=batches))
    assert [next(iterator).item() for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(Exception, match="pickle") as caught:
        next(iterator)
    assert "in the batch of dataset indices" in "".join(caught.value.__notes__)
    assert values(iterator) == [6, 7]


class Stuck(IterableDataset[int]):
    """Waits for ever, in the kernel."""

    def __iter__(self) -> Iterator[int]:
        signal.pause()
        yield 0


class StuckAt(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        signal.pause()
        return index


@pytest.mark.parametrize(
    ("dataset", "options", "where"),
    [
        (Stuck(), {"batch_size": 2}, "batch 0 for"),
        (Stuck(), {"batch_size": None}, "batch 0 for"),
        (StuckAt(), {"batch_sampler": [{3}]}, r"dataset index 3 \(row 0 of batch 0\) for"),
        (StuckAt(), {"batch_size": None, "sampler": [5]}, "dataset index 5 for"),
    ],
)
def test_a_timeout_says_where_its_worker_is(dataset: Any, options: dict[str, Any], where: str) -> None:
    iterator = iter(stoker.DataLoader(dataset, num_workers=1, timeout=2, **options))
    with pytest.raises(stoker.errors.WorkerTimeout, match=where):
        next(iterator)


@pytest.fixture
def spare_descriptors() -> Iterator[Callable[[int], None]]:
    """Call it with how many more descriptors this process may open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    def spare(count: int) -> None:
        taken = max(int(name) for name in os.listdir("/proc/self/fd"))
        filled.extend(os.dup(0) for _ in range(taken + 1 - len(os.listdir("/proc/self/fd"))))
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken + 1 + count, before[1]))

    filled: list[int] = []
    yield spare
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    for fd in filled:
        os.close(fd)


@pytest.mark.parametrize("count", range(8))
def test_a_start_without_descriptors_leaves_none_behind(
    count: int, spare_descriptors: Callable[[int], None]
) -> None:
    loader = stoker.DataLoader(Counting(), num_workers=1)
    spare_descriptors(count)
    with pytest.raises(OSError, match="Too many open files"):
        iter(loader)


def test_closing_needs_no_free_descriptor(spare_descriptors: Callable[[int], None]) -> None:
    loader = stoker.DataLoader(Counting(), num_workers=1)
    iterator = iter(loader)
    next(iterator)
    spare_descriptors(0)
    loader.close()


class SlowStart(Sampler[int]):
    """Lets every thread come as far as here before one goes on."""

    gate: threading.Barrier | None = None

    def __iter__(self) -> Iterator[int]:
        if self.gate is not None:
            self.gate.wait()
        return iter(range(8))

    def __len__(self) -> int:
        return 8


def test_threads_that_iterate_one_loader_do_not_share_its_workers() -> None:
    sampler = SlowStart()
    with stoker.DataLoader(Counting(), num_workers=1, persistent_workers=True, sampler=sampler) as loader:
        assert values(loader) == list(range(8))
        sampler.gate = threading.Barrier(3)
        seen: list[list[int]] = []
        threads = [threading.Thread(target=lambda: seen.append(values(loader))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seen == [list(range(8))] * 3


class Talking(Dataset[int]):
    """Prints and logs every index."""

    def __len__(self) -> int:
        return 600

    def __getitem__(self, index: int) -> int:
        print("printed", index)
        logging.getLogger("talking").warning("logged %d %s", index, "-" * 500)
        return index


class Counter(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.seen += 1
        raise RuntimeError("a handler that fails")


@pytest.mark.parametrize("stream", [None, io.StringIO()])
def test_what_a_worker_says_harms_no_batch(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if stream is not None:
        stream.close()
    counter = Counter()
    logger = logging.getLogger("talking")
    monkeypatch.setattr(logger, "handlers", [counter])
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(sys, "stdout", stream)
    assert values(stoker.DataLoader(Talking(), batch_size=4, num_workers=1)) == list(range(600))
    assert counter.seen > 0


def test_logs_reach_a_consumer_that_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = Counter()
    monkeypatch.setattr(logging.getLogger("talking"), "handlers", [counter])
    iterator: Any = iter(stoker.DataLoader(Talking(), batch_size=4, num_workers=1, prefetch_factor=2))
    for _ in range(150):
        if not iterator._iteration._ready:  # wait here, so that next() has nothing to wait for
            select.select([iterator._pool.executor._results.read_fd], [], [], 10)
        next(iterator)
    del iterator
    assert counter.seen == 600


class Leaving(Counting):
    def __getitem__(self, index: int) -> int:
        if index == 2:
            os._exit(7)
        return index


def test_a_death_names_the_batch_that_was_being_made() -> None:
    iterator = iter(stoker.DataLoader(Leaving(), batch_size=2, num_workers=1, restarts=0))
    next(iterator)
    with pytest.raises(stoker.errors.WorkerDied, match="exit code 7") as caught:
        next(iterator)
    assert "worker 0 was on dataset index 2 (row 0 of batch 1)" in str(caught.value)


def test_an_iterator_torn_by_a_signal_says_so_and_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    with stoker.DataLoader(Counting(), num_workers=1, persistent_workers=True) as loader:
        iterator = iter(loader)

        def interrupted(arrival: Any) -> Any:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(iterator._pool, "route", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(iterator)
        with pytest.raises(stoker.errors.Interrupted, match=r"call iter\(loader\)"):
            next(iterator)
        del iterator
        assert values(loader) == list(range(8))


def test_an_iterator_interrupted_while_it_waits_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    iterator: Any = iter(stoker.DataLoader(Counting(), num_workers=1))

    def interrupted(timeout_s: float | None) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(iterator._pool.executor, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
    assert values(iterator) == list(range(8))


class Impatient:
    """Batches of a sampler in whose third one somebody presses Ctrl-C."""

    def __init__(self) -> None:
        self.drawn = 0

    def __iter__(self) -> Impatient:
        return self

    def __next__(self) -> list[int]:
        self.drawn += 1
        if self.drawn == 3:
            raise KeyboardInterrupt
        if self.drawn > 6:
            raise StopIteration
        return [self.drawn]


def test_an_interrupted_sampler_can_go_on_without_workers() -> None:
    iterator = iter(stoker.DataLoader(Counting(), batch_sampler=Impatient()))
    assert [next(iterator).item() for _ in range(2)] == [1, 2]
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    assert values(iterator) == [4, 5, 6]
