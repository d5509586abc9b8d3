"""``timeout`` without workers: the batch is given up where SIGALRM is free, and nothing else is lost.

pytest's own limit uses SIGALRM by default, so these tests have theirs kept by a thread.
"""

from __future__ import annotations

import logging
import re
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset

import stoker
from stoker.errors import WorkerTimeout
from stoker.testing import Gate
from tests.fault.holding import Rows, WaitingCollation, nothing, rest_of, wait_at_the_gate
from tests.fault.rows import steps


def sleep_long() -> None:
    time.sleep(1000)


def compute_for_ever() -> None:
    while True:
        pass


def catch_what_can_be_caught() -> None:
    while True:
        try:
            time.sleep(1000)
        except Exception:
            continue


@pytest.fixture
def unlimited() -> Iterator[None]:
    """SIGALRM and its timer are free before and after."""
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    yield
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def inline(dataset: Any, **options: Any) -> Any:
    return stoker.DataLoader(dataset, **{"batch_size": 10, "timeout": 0.3, **options})


@pytest.mark.timeout(120, method="thread")
@pytest.mark.usefixtures("unlimited")
@pytest.mark.parametrize(
    "hold", [sleep_long, compute_for_ever, catch_what_can_be_caught], ids=lambda hold: hold.__name__
)
def test_without_workers_the_timeout_holds_too(hold: Callable[[], None]) -> None:
    """Row 33: the timeout was refused at 0 workers. The next ``next()`` gives the next batch."""
    found = steps(inline(Rows(hold)))
    [error] = [step for step in found if isinstance(step, Exception)]
    assert type(error) is WorkerTimeout
    lines = str(error).splitlines()
    assert lines[0] == "DataLoader timed out after 0.3 seconds"
    assert lines[1] == "  this process was on dataset index 53 (row 3 of batch 5)"
    assert re.search(rf"test_timeouts_inline\.py\", line \d+ in {hold.__name__}", "\n".join(lines[2:]))
    assert not any("_executors" in line for line in lines)
    rows = [row for step in found if not isinstance(step, Exception) for row in step.tolist()]
    assert rows == [*range(50), *range(60, 100)]


@pytest.mark.timeout(120, method="thread")
@pytest.mark.usefixtures("unlimited")
def test_without_workers_a_blocking_read_and_collation(gate: Gate) -> None:
    [first] = [
        step for step in steps(inline(Rows(wait_at_the_gate, gate.path))) if isinstance(step, Exception)
    ]
    assert "in wait_at_the_gate" in str(first)
    collation = inline(Rows(nothing), collate_fn=WaitingCollation(gate.path))
    [second] = [step for step in steps(collation) if isinstance(step, Exception)]
    assert "this process was on the collation of batch 5 of dataset indices [50, " in str(second)


@pytest.mark.timeout(120, method="thread")
@pytest.mark.usefixtures("unlimited")
def test_without_workers_the_trainers_randomness_does_not_move() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    loader = inline(Rows(sleep_long), generator=torch.Generator().manual_seed(1))
    steps(loader)
    assert torch.equal(before, torch.get_rng_state())


class Stream(IterableDataset[int]):
    """Forty values; the one at 13 takes too long. ``generator`` says how they come."""

    def __init__(self, generator: bool) -> None:
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        values = (self.value(number) for number in range(40))
        return values if self.generator else map(self.value, range(40))

    def value(self, number: int) -> int:
        if number == 13:
            sleep_long()
        return number


@pytest.mark.timeout(120, method="thread")
@pytest.mark.usefixtures("unlimited")
@pytest.mark.parametrize("generator", [True, False], ids=["generator", "iterator"])
def test_without_workers_a_stream_that_ends_with_the_timeout_says_so(generator: bool) -> None:
    found = steps(inline(Stream(generator)))
    errors = [str(step) for step in found if isinstance(step, Exception)]
    assert len(errors) == 1
    assert "this process was on batch 1\n" in errors[0]
    assert "in sleep_long" in errors[0]
    assert ("this stream has no further samples" in errors[0]) is generator
    rows = [row for step in found if not isinstance(step, Exception) for row in step.tolist()]
    assert rows == (list(range(10)) if generator else [*range(10), *range(14, 40)])


def log_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "stoker"]


def test_off_the_main_thread_the_timeout_is_not_enforced_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="stoker")
    loader = inline(Rows(nothing))
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: rest_of(iter(loader))).result() == list(range(100))
    assert ["timeout is not enforced" in message for message in log_of(caplog)] == [True]


@pytest.mark.timeout(120, method="thread")
def test_where_sigalrm_is_taken_it_stays_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="stoker")

    def mine(number: int, frame: Any) -> None:
        raise AssertionError("nobody rings")

    previous = signal.signal(signal.SIGALRM, mine)
    try:
        assert rest_of(iter(inline(Rows(nothing)))) == list(range(100))
        assert signal.getsignal(signal.SIGALRM) is mine
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert ["timeout is not enforced" in message for message in log_of(caplog)] == [True]


@pytest.mark.timeout(120, method="thread")
@pytest.mark.usefixtures("unlimited")
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # a tiny one may come in a finalizer
def test_without_workers_tiny_timeouts_lose_nothing_but_their_batch() -> None:
    """The alarm may come at any line of ours: every batch is there or is a timeout, in order, and none comes out later."""
    for tens_us in range(1, 60):
        found = steps(inline(Rows(nothing, work=0), timeout=tens_us * 1e-5))
        assert len(found) == 10
        for number, step in enumerate(found):
            if isinstance(step, Exception):
                assert type(step) is WorkerTimeout, repr(step)
            else:
                assert step.tolist() == list(range(10 * number, 10 * number + 10))
