"""A worker's readings of its own CPU time: exact for slow tasks, together for quick ones, none where the kernel does not tell."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker._runtime.protocol.status_page import BUSY_NS, CPU_NS, RUNQ_NS, TASKS, WORDS
from stoker._runtime.worker import cpu_meter as module
from stoker._runtime.worker.cpu_meter import NO_READING, READING_NS, CpuMeter, SingleTaskMeter


class Kernel:
    """Writes what the kernel would."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tell(0, 0)

    def tell(self, cpu_ns: int, runq_ns: int) -> None:
        self.path.write_text(f"{cpu_ns} {runq_ns} 1\n")


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel(tmp_path / "schedstat")
    monkeypatch.setattr(module, "open_account", lambda: os.open(kernel.path, os.O_RDONLY))
    return kernel


@pytest.fixture
def meter(kernel: Kernel) -> Iterator[CpuMeter]:
    meter = CpuMeter([0] * WORDS)
    yield meter
    meter.close()


def test_a_slow_task_has_a_reading_of_its_own(meter: CpuMeter, kernel: Kernel) -> None:
    kernel.tell(500, 70)
    assert meter.slow
    meter.began(0)
    kernel.tell(500 + READING_NS, 70 + 10)
    assert meter.ended(0, 2 * READING_NS) == (READING_NS, 10, 2 * READING_NS)
    kernel.tell(900 + READING_NS, 99)  # between the two tasks
    assert meter.slow
    meter.began(3 * READING_NS)
    kernel.tell(950 + READING_NS, 99)
    assert meter.ended(3 * READING_NS, 5 * READING_NS) == (50, 0, 2 * READING_NS)


def test_a_task_that_computes_has_cpu_time_though_the_kernel_did_not_tick() -> None:
    meter = CpuMeter()
    if not meter.slow:
        pytest.skip("this kernel keeps no account")
    readings = []
    for _ in range(16):
        began_ns = time.perf_counter_ns()
        meter.began(began_ns)
        meter.due_ns = 0  # however quick it was
        sum(range(60_000))
        readings.append(meter.ended(began_ns, time.perf_counter_ns()))
    meter.close()
    assert all(each.cpu_ns for each in readings)


def test_quick_tasks_share_one(meter: CpuMeter, kernel: Kernel) -> None:
    meter.began(0)
    assert meter.ended(0, 10) == NO_READING
    assert not meter.slow
    kernel.tell(25, 5)
    assert meter.ended(20, 30) == NO_READING
    assert meter.ended(READING_NS, READING_NS + 10) == (25, 5, 30)
    row = meter._row
    assert [row[word] for word in (CPU_NS, RUNQ_NS, BUSY_NS, TASKS)] == [25, 5, 30, 3]


def test_no_more_than_the_tasks_took_is_theirs(meter: CpuMeter, kernel: Kernel) -> None:
    meter.began(0)
    kernel.tell(READING_NS, 3 * READING_NS)  # most of it while the worker waited for its task
    assert meter.ended(5 * READING_NS, 5 * READING_NS + 400) == (100, 300, 400)


def test_slow_tasks_have_an_account_of_their_own_where_that_is_asked_for(kernel: Kernel) -> None:
    meter = SingleTaskMeter()
    took = READING_NS
    for number in range(1, 4):
        kernel.tell(10 * took * number, 0)
        assert meter.slow
        meter.began(10 * took * number)
        kernel.tell(10 * took * number + 7, 0)
        assert meter.ended(10 * took * number, 10 * took * number + took) == (7, 0, took)
    meter.close()


def test_of_quick_tasks_one_every_while_has_an_account(kernel: Kernel) -> None:
    meter = SingleTaskMeter()
    read = []
    for number in range(100):
        began_ns = number * READING_NS // 10
        kernel.tell(1000 * number, 0)
        meter.began(began_ns)
        kernel.tell(1000 * number + 7, 0)
        reading = meter.ended(began_ns, began_ns + 10)
        if reading != NO_READING:
            assert reading == (7, 0, 10), "of this task alone"
            read.append(number)
    assert read == list(range(0, 100, 11))
    meter.close()


def test_a_descriptor_that_the_dataset_closed(meter: CpuMeter) -> None:
    os.close(meter._fd)
    meter.began(0)
    assert meter.ended(0, 10 * READING_NS) == NO_READING
    assert not meter.slow
    assert meter.ended(20 * READING_NS, 30 * READING_NS) == NO_READING


def test_a_system_without_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "open_account", lambda: -1)
    meter = CpuMeter()
    assert not meter.slow
    assert meter.ended(0, 10 * READING_NS) == NO_READING
    meter.close()
