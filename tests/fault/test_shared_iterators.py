"""Several threads that pull one iterator: every sample comes once, and the end comes to all of them at once."""

from __future__ import annotations

import os
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.errors import LoaderClosed
from stoker.testing import Gate
from tests.fault.datasets import Gated

ROWS = 120
WAYS: dict[str, dict[str, Any]] = {
    "inline": {},
    "workers": {"num_workers": 2},
    "persistent": {"num_workers": 2, "persistent_workers": True},
    "threads": {"num_workers": 2, "executor": "thread"},
}


@pytest.mark.parametrize("way", WAYS)
def test_threads_share_an_iterator(way: str, caplog: pytest.LogCaptureFixture) -> None:
    """The second thread to find the end once waited 30 s for a batch that nobody made."""
    dataset: Any = range(ROWS)
    with stoker.DataLoader(dataset, batch_size=2, **WAYS[way]) as loader:
        for _ in range(3):
            iterator = iter(loader)
            rows: list[int] = []
            failed: list[BaseException] = []

            def pull(iterator: Any = iterator, rows: Any = rows, failed: Any = failed) -> None:
                try:
                    for batch in iterator:
                        rows.extend(batch.tolist())
                except BaseException as error:
                    failed.append(error)

            threads = [threading.Thread(target=pull) for _ in range(3)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            assert failed == []
            assert sorted(rows) == list(range(ROWS))
    assert "has waited" not in caplog.text  # the stall monitor's word


def test_a_child_that_is_forked_while_another_thread_pulls_is_told(tmp_path: Path) -> None:
    """That thread does not exist in the child, and would hold its turn there for ever."""
    gate = Gate(str(tmp_path))
    with closing(gate), stoker.DataLoader(Gated(gate.path, 1), batch_size=1, num_workers=1) as loader:
        iterator = iter(loader)
        next(iterator)
        pulling = threading.Thread(target=next, args=(iterator,))
        pulling.start()
        while iterator._turn.acquire(blocking=False):  # until it has its turn
            iterator._turn.release()
        child = os.fork()
        if child == 0:
            try:
                next(iterator)
            except LoaderClosed:
                os._exit(7)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        gate.open()
        pulling.join()
