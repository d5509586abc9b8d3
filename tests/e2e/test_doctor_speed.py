"""The doctor's probes of threads and speed, on datasets whose nature is known. No time is asserted, only what must be so."""

from __future__ import annotations

import multiprocessing
import os
import time

import cv2
import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from stoker._tools.doctor.facts.speed import SpeedFacts
from stoker._tools.doctor.facts.worker import WorkerFacts
from stoker._tools.doctor.instruments import race
from stoker._tools.doctor.probes import speed, worker
from stoker._tools.sandbox.subject import Subject


class Made(Dataset):
    """Samples as a function makes them."""

    def __init__(self, make, length: int = 1000) -> None:
        self.make = make
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int):
        return self.make(index)


@pytest.fixture(autouse=True)
def _short_budgets(monkeypatch):
    monkeypatch.setattr(speed, "_INLINE_S", 0.3)
    monkeypatch.setattr(speed, "_PROFILED_S", 0.1)
    monkeypatch.setattr(speed, "_RACE_S", 0.3)
    monkeypatch.setattr(race, "_ENOUGH_S", 0.3)
    monkeypatch.setattr(worker, "_MEASURED_S", 0.3)


@pytest.fixture
def four_threads():
    before = cv2.getNumThreads()
    cv2.setNumThreads(4)
    yield
    cv2.setNumThreads(before)


def _worker(make) -> WorkerFacts:
    return worker.probe(Subject(Made(make)))


def _speed(dataset: Dataset, **arguments) -> SpeedFacts:
    return speed.probe(Subject(dataset, arguments={"batch_size": 16, "num_workers": 2, **arguments}))


def test_threads_of_opencv_are_told_from_a_pool_that_computes_nothing(four_threads):
    # Large: on a busy machine the other threads have to get a turn before the first one has done it all.
    image = np.random.default_rng(0).integers(0, 255, (2400, 3200, 3), dtype=np.uint8)
    blurring = _worker(lambda index: cv2.GaussianBlur(image, (31, 31), 5))
    assert blurring.computing == "cv2"
    assert blurring.pools["cv2"] == 4
    assert blurring.threads_started >= 1
    assert blurring.beside > 0.2

    kept: list[int] = []
    opening = _worker(lambda index: kept.append(os.open(os.devnull, os.O_RDONLY)))
    assert (opening.computing, opening.threads_started) == ("", 0)
    assert opening.descriptors_per_sample == pytest.approx(1.0)
    assert opening.left_open[0] == os.devnull


def test_waiting_samples_and_tiny_ones_are_both_measured():
    def waiting(index: int) -> torch.Tensor:
        time.sleep(0.002)
        return torch.zeros(4)

    waited = _speed(Made(waiting))
    assert waited.loader_s is not None  # that it is the smaller one: python -m benchmarks.doctor
    assert waited.cpu_share < 0.7
    assert waited.hot[0].function == "time.sleep"
    assert waited.hot[0].caller.startswith("test_doctor_speed.py:")
    assert waited.repeatable

    tiny = _speed(Made(lambda index: torch.rand(10)))
    assert tiny.parent_s is not None
    assert not tiny.repeatable
    assert (tiny.batch_bytes, tiny.batch_tensors, tiny.workers) == (640, 1, 2)


def test_a_straggler_is_found_by_its_index_and_computing_by_its_function(monkeypatch: pytest.MonkeyPatch):
    def uneven(index: int) -> torch.Tensor:
        time.sleep(0.03 if index == 50 else 0.0002)
        return torch.zeros(1)

    with monkeypatch.context() as patch:
        # All samples are to be tried: with little time the probe may not come to the slow one on a busy machine.
        patch.setattr(speed, "_INLINE_S", 30.0)
        patch.setattr(speed, "_AGAIN_S", 30.0)
        found = _speed(Made(uneven, 200))
    assert 50 in [each.index for each in found.slow]
    assert found.slow_share < 0.1

    def computing(index: int) -> int:
        total = 0
        while total < 100_000:
            total += 1
        return total

    busy = _speed(Made(computing))
    assert busy.cpu_share > 0.7
    assert busy.hot[0].own
    assert busy.hot[0].share > 0.5
    first = computing.__code__.co_firstlineno
    assert busy.hot[0].caller in (f"test_doctor_speed.py:{first + 2}", f"test_doctor_speed.py:{first + 3}")


def test_a_race_that_fails_leaves_no_workers_to_wait_for():
    ragged = Subject(Made(lambda index: torch.zeros(index % 2 + 1)), arguments={"num_workers": 2})
    pace = race.race(ragged, [[0, 1], [2, 3]] * 8, 2)
    assert "a trial with 2 workers failed" in pace.why_not
    assert multiprocessing.active_children() == []
