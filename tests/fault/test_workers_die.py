"""Workers that are killed, exit, or outlive their parent: batches arrive exactly once or one clear error does."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.testing import Gate, leak_guard
from tests.compat.compare import assert_same, seed_everything
from tests.fault.datasets import Deadly, DeadlyStream, Gated, die

KILLED = r"DataLoader worker \(pid \d+\) is killed by signal: Killed"
EXITED = r"DataLoader worker \(pid\(s\) \d+\) exited unexpectedly"


def loader_of(dataset: Any, **options: Any) -> Any:
    seed_everything(11)
    return stoker.DataLoader(
        dataset, **{"batch_size": 40, "num_workers": 2, "multiprocessing_context": "fork", **options}
    )


def without_workers(dataset: Any, **options: Any) -> list[Any]:
    seed_everything(11)
    return list(stoker.DataLoader(dataset, **{"batch_size": 40, **options}))


@pytest.mark.parametrize("split", [True, False], ids=["split", "whole"])
@pytest.mark.parametrize(
    "deadly",
    [{0}, {39}, {5, 30}, {50}, {199}, {0, 40, 80, 120, 160}],
    ids=["first row", "second part", "both parts", "in the middle", "last row", "every batch"],
)
def test_a_killed_worker_costs_nothing_but_time(deadly: set[int], split: bool, tmp_path: Path) -> None:
    dataset = Deadly(tmp_path, deadly)
    expected = without_workers(dataset)
    assert_same(expected, list(loader_of(dataset, split_batches=split)))
    assert dataset.marks.count("death") == len(deadly)


@pytest.mark.parametrize(
    "options", [{"num_workers": 1}, {"num_workers": 3}, {"shuffle": True}, {"rng": "torch"}]
)
def test_the_same_under_other_options(options: dict[str, Any], tmp_path: Path) -> None:
    dataset = Deadly(tmp_path, {17, 93, 140})
    if options.get("rng") == "torch":  # which worker makes a batch matters here: its rows are compared alone
        expected = without_workers(dataset)
        found = list(loader_of(dataset, **options))
        assert_same([batch["row"] for batch in expected], [batch["row"] for batch in found])
    else:
        expected = without_workers(dataset, shuffle=options.get("shuffle"))
        assert_same(expected, list(loader_of(dataset, **options)))
    assert dataset.marks.count("death") == 3


def test_out_of_order_every_batch_arrives_once(tmp_path: Path) -> None:
    dataset = Deadly(tmp_path, {17, 93, 140})
    expected = without_workers(dataset)
    found = sorted(loader_of(dataset, in_order=False), key=lambda batch: int(batch["index"][0]))
    assert_same(expected, found)


def test_workers_killed_from_outside_again_and_again(tmp_path: Path) -> None:
    dataset = Deadly(tmp_path, set())
    expected = without_workers(dataset, batch_size=10)
    found = []
    iterator = iter(loader_of(dataset, batch_size=10))
    for number in range(len(expected)):
        worker = iterator._workers[number % 2]
        if worker.is_alive():
            os.kill(worker.pid, signal.SIGKILL)
        found.append(next(iterator))
        del worker
    assert next(iterator, None) is None
    assert_same(expected, found)


def test_persistent_workers_killed_between_epochs(tmp_path: Path) -> None:
    dataset = Deadly(tmp_path, set())
    expected = [without_workers(dataset)]
    with loader_of(dataset, persistent_workers=True) as loader:
        assert_same(expected[0], list(loader))
        for worker in loader._iterator._workers:
            os.kill(worker.pid, signal.SIGKILL)
            worker.join()
            del worker
        seed_everything(11)
        assert_same(expected[0], list(loader))


def test_a_stream_is_wound_forward_to_where_its_worker_died(tmp_path: Path) -> None:
    whole = DeadlyStream(tmp_path, set())
    expected = list(loader_of(whole, batch_size=4))
    found = list(loader_of(DeadlyStream(tmp_path, {0, 21, 40}), batch_size=4))
    assert_same(expected, found)


def test_without_restarts_a_death_is_torchs_error(tmp_path: Path) -> None:
    dataset = Deadly(tmp_path, {50})
    iterator = iter(loader_of(dataset, restarts=0))
    next(iterator)
    with pytest.raises(RuntimeError, match=KILLED) as caught:
        next(iterator)
    del caught
    assert dataset.marks.count("death") == 1


@pytest.mark.parametrize("restarts", [0, 2])
def test_a_row_that_always_kills_is_one_error_and_the_rest_arrives(restarts: int, tmp_path: Path) -> None:
    dataset = Deadly(tmp_path, {50}, times=1000)
    expected = without_workers(dataset)
    found: list[Any] = []
    failed: list[tuple[int, bool]] = []
    iterator = iter(loader_of(dataset, restarts=restarts, split_batches=False))
    for number in range(len(expected)):
        try:
            found.append(next(iterator))
        except RuntimeError as error:
            failed.append((number, bool(re.search(KILLED, str(error)))))
    assert failed == [(1, True)]
    assert next(iterator, None) is None
    assert_same([*expected[:1], *expected[2:]], found)
    assert dataset.marks.count("death") == restarts + 1


def test_a_dataset_that_always_kills_ends_in_one_error(tmp_path: Path) -> None:
    dataset = Deadly(tmp_path, set(range(200)), times=1000)
    with pytest.raises(RuntimeError, match=KILLED):
        list(loader_of(dataset))
    assert dataset.marks.count("death") <= 2 * 3 + 2


def test_workers_that_cannot_start_end_in_one_error(tmp_path: Path) -> None:
    dataset = Deadly(tmp_path, set())
    with pytest.raises(RuntimeError, match=EXITED):
        list(loader_of(dataset, worker_init_fn=lambda worker: die(4)))


@pytest.mark.parametrize("restarts", [0, 1])
def test_an_exit_is_told_from_a_kill(restarts: int, tmp_path: Path) -> None:
    dataset = Deadly(tmp_path, {50}, times=1000, code=3)
    with pytest.raises(RuntimeError, match=EXITED + " with exit code 3"):
        list(loader_of(dataset, restarts=restarts))


def test_a_break_beside_busy_workers_leaves_nothing(tmp_path: Path) -> None:
    gate = Gate(str(tmp_path))
    with leak_guard():
        for number, batch in enumerate(loader_of(Gated(gate.path, 20), batch_size=10)):
            assert batch.tolist() == list(range(10 * number, 10 * number + 10))
            if number == 1:
                break
    gate.close()
