"""Under forkserver one process unpickles the dataset and all workers are forked from it, unless that would not be safe."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

import stoker
from stoker._runtime.executors.process import spawner
from tests.fault.datasets import Unpacked
from tests.fault.rows import run

GONE_S = 10.0
"""Bound on a wait that ends at once when all is well."""


def loader(dataset: Unpacked, **options: Any) -> stoker.DataLoader[Any]:
    """Two workers that each make every other batch, so that both show up in every epoch."""
    arguments: dict[str, Any] = {
        "batch_size": 2, "num_workers": 2, "multiprocessing_context": "forkserver", "rng": "torch",
        "persistent_workers": True, **options,
    }  # fmt: skip
    return stoker.DataLoader(dataset, **arguments)


def epoch(loader: stoker.DataLoader[Any]) -> dict[int, set[int]]:
    """Who unpickled the dataset for each worker, after an epoch in which no row was missing."""
    rows = [row for batch in loader for row in zip(*(column.tolist() for column in batch), strict=True)]
    assert [row[0] for row in rows] == list(range(16))
    return {pid: {row[2] for row in rows if row[1] == pid} for pid in {row[1] for row in rows}}


def await_gone(*pids: int) -> None:
    """Wait for the end of processes that are not our children."""
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            assert select.select([fd], [], [], GONE_S)[0], f"pid {pid} is still there"
        finally:
            os.close(fd)


def test_workers_and_their_replacements_come_from_one_template(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = Unpacked(tmp_path, "settings")
    with loader(dataset) as loading:
        seen = epoch(loading)
        [template] = set.union(*seen.values())
        assert template not in {os.getpid(), *seen}
        assert all(psutil.Process(pid).ppid() == template for pid in seen)

        killed, living = seen
        os.kill(killed, signal.SIGKILL)
        seen = epoch(loading)
        assert killed not in seen
        assert living in seen
        assert seen == {pid: {template} for pid in seen}
        assert "is killed by signal: Killed" in caplog.text
        assert dataset.marks.count("unpacked-") == 1
        assert caplog.text.count("unpacked in ") == 1

        os.kill(template, signal.SIGKILL)
        await_gone(template)
        assert epoch(loading) == seen
        os.kill(living, signal.SIGKILL)
        [heir] = epoch(loading).keys() - seen.keys()
        assert epoch(loading)[heir] == {heir}
        assert "each worker unpickles the dataset for itself" in caplog.text


def test_what_a_worker_writes_stays_its_own(tmp_path: Path) -> None:
    with loader(Unpacked(tmp_path)) as loading:
        rows = [row for batch in loading for row in zip(*(column.tolist() for column in batch), strict=True)]
    for pid in {row[1] for row in rows}:
        assert [row[3] for row in rows if row[1] == pid] == list(range(1, 9))


def test_a_template_ends_with_its_pool_whoever_was_forked_meanwhile(tmp_path: Path) -> None:
    with loader(Unpacked(tmp_path)) as loading:
        seen = epoch(loading)
        waiting_fd, release_fd = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(release_fd)
            os.read(waiting_fd, 1)
            os._exit(0)
    try:
        assert not any(psutil.pid_exists(pid) for pid in set.union(set(seen), *seen.values()))
    finally:
        os.close(waiting_fd)
        os.close(release_fd)
        os.waitpid(child, 0)


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ("thread", "unpacking it started threads (reader)"),
        ("file", "unpacking it opened "),
        ("die once", "ended with exit code 3"),
        ("hang once", "did not answer within "),
    ],
)
def test_where_a_template_will_not_do_workers_unpack_for_themselves(
    trouble: str,
    reason: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level("INFO", logger="stoker")
    if trouble == "hang once":
        monkeypatch.setattr(spawner, "PATIENCE_S", 0.3)
        monkeypatch.setattr(spawner, "_FAREWELL_S", 0.1)
    with loader(Unpacked(tmp_path, trouble)) as loading:
        seen = epoch(loading)
        assert seen == {pid: {pid} for pid in seen}
        assert reason in caplog.text


def test_a_dataset_that_cannot_be_unpacked_fails_as_without_a_template(tmp_path: Path) -> None:
    with (
        loader(Unpacked(tmp_path, "raise")) as loading,
        pytest.raises(ValueError, match="cannot be unpacked"),
    ):
        next(iter(loading))


def test_an_interrupt_ends_the_wait_for_a_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawner, "_FAREWELL_S", 0.1)
    wait = spawner._TemplateHandle.await_ready

    def interrupted(template: Any, patience_s: float) -> str:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        return wait(template, patience_s)

    monkeypatch.setattr(spawner._TemplateHandle, "await_ready", interrupted)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with loader(Unpacked(tmp_path, "hang once")) as loading, pytest.raises(KeyboardInterrupt):
            iter(loading)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_template_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with loader(Unpacked(tmp_path)) as loading:
        seen = epoch(loading)
        monkeypatch.setattr(
            spawner, "_FORK_S", 0.1
        )  # from now on: a busy machine takes longer for the first ones
        monkeypatch.setattr(spawner, "_FAREWELL_S", 0.1)
        [template] = set.union(*seen.values())
        os.kill(template, signal.SIGSTOP)
        os.kill(min(seen), signal.SIGKILL)
        [heir] = epoch(loading).keys() - seen.keys()
        assert epoch(loading)[heir] == {heir}
        await_gone(template)


def test_one_worker_has_no_template(tmp_path: Path) -> None:
    with loader(Unpacked(tmp_path), num_workers=1) as loading:
        seen = epoch(loading)
    assert seen == {pid: {pid} for pid in seen}


PARENT_KILLED = """
    import os, signal, sys
    from pathlib import Path
    from stoker import DataLoader
    from tests.fault.datasets import Unpacked

    dataset = Unpacked(Path(sys.argv[1]))
    loader = DataLoader(dataset, num_workers=2, multiprocessing_context="forkserver", persistent_workers=True)
    for _, pids, templates, _ in loader:
        print(*pids.tolist(), *templates.tolist(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_template_dies_with_its_parent(tmp_path: Path) -> None:
    done = run(PARENT_KILLED, str(tmp_path))
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = {int(pid) for pid in done.stdout.split()}
    assert len(pids) >= 2
    await_gone(*pids)
