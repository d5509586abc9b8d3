"""Pages of running processes, found in a /proc that is made up: who owns one, who merely inherited it, and what cannot be seen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoker._record.run_page import page as pages
from stoker._record.run_page.page import RunPage
from stoker._record.run_page.summary import RecentSums, summary_of
from stoker._runtime.protocol import status_page
from stoker._tools.top.processes import ProcessScan, belongs, scan
from tests.unit import records


class Proc:
    """A folder like /proc. Pages are files; descriptors are links to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "proc"
        self.files = folder / "files"
        self.folder.mkdir()
        self.files.mkdir()
        (self.folder / "meminfo").write_text("no process")

    def process(self, pid: int, *, start: int = 5, inner: int | None = None, parent: int = 1) -> Path:
        """A process; ``inner`` is its pid in its own container."""
        home = self.folder / str(pid)
        (home / "fd").mkdir(parents=True)
        rest = " ".join(["0"] * 17)
        (home / "stat").write_text(f"{pid} (a) b (c) S {parent} {rest} {start} 0 0")
        (home / "status").write_text(f"Name:\tx\nNSpid:\t{pid}" + (f"\t{inner}" if inner else "") + "\n")
        (home / "cmdline").write_bytes(b"/usr/bin/python3\0/home/me/train.py\0--lr\0" + b"0.1\0")
        (home / "schedstat").write_text(f"{pid}000 {pid} 7\n")
        return home

    def hold(self, pid: int, file: Path) -> None:
        """Open a file in a process."""
        fds = self.folder / str(pid) / "fd"
        os.symlink(file, fds / str(len(list(fds.iterdir()))))

    def run_page(self, pid: int, start: int = 5, **words: int) -> Path:
        """A run page that names this owner."""
        page = RunPage.create()
        page.words[pages.OWNER_PID], page.words[pages.OWNER_START] = pid, start
        for name, value in words.items():
            page.words[getattr(pages, name)] = value
        page.write(summary_of(records.loader(name=f"of {pid}"), RecentSums(), workers=2, at_ns=1))
        assert page._map is not None
        return self._file("memfd:stoker-run (deleted)", page._map[:])

    def status_page(self, parent: int, workers: dict[int, dict[str, int]]) -> Path:
        """A status page; by worker, words of its row."""
        page = status_page.StatusPage.create()
        page.control[status_page.PARENT_PID] = parent
        page.control[status_page.EPOCH] = 3
        for worker, words in workers.items():
            for name, value in words.items():
                page.row(worker)[getattr(status_page, name)] = value
        content = os.pread(page.fd, status_page.ROW_BYTES * (status_page.MAX_WORKERS + 1), 0)
        page.close()
        return self._file("memfd:stoker-status (deleted)", content)

    def _file(self, name: str, content: bytes) -> Path:
        folder = self.files / str(len(list(self.files.iterdir())))
        folder.mkdir()
        (folder / name).write_bytes(content)
        return folder / name

    def scan(self) -> ProcessScan:
        return scan(str(self.folder))


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_nobody_runs_a_loader(proc: Proc) -> None:
    proc.process(10)
    proc.hold(10, proc.folder / "meminfo")
    found = proc.scan()
    assert (found.loaders, found.skipped) == ((), ())


def test_a_page_is_one_however_many_processes_inherited_it(proc: Proc) -> None:
    for pid in (11, 10, 12):
        proc.process(pid, parent=10)
    file = proc.run_page(10, ASKED_NS=4)
    for pid in (11, 10, 12):
        proc.hold(pid, file)
    proc.hold(10, file)
    [loader] = proc.scan().loaders
    assert loader.pid == 10
    assert loader.command == "train.py --lr 0.1"
    assert loader.reading is not None
    assert loader.reading.asked_ns == 4
    assert loader.reading.summary is not None
    assert loader.reading.summary["name"] == "of 10"


@pytest.mark.parametrize("alive", [False, True])
def test_the_page_of_a_dead_owner_is_not_shown(proc: Proc, alive: bool) -> None:
    file = proc.run_page(10, start=5)
    proc.process(11)
    proc.hold(11, file)
    if alive:  # another process has its pid by now, and was even given the page
        proc.process(10, start=900)
        proc.hold(10, file)
    pool = proc.status_page(9, {0: {"PID": 11}})
    proc.hold(11, pool)
    assert proc.scan().loaders == ()


def test_an_owner_in_a_container_is_known_by_its_own_pid(proc: Proc) -> None:
    proc.process(5010, inner=10)
    proc.process(5011, inner=11, parent=5010)
    proc.hold(5010, proc.run_page(10))
    file = proc.status_page(10, {0: {"PID": 11, "SINCE_NS": 1}})
    proc.hold(5010, file)
    proc.hold(5011, file)
    found = proc.scan().loaders
    assert {loader.pid for loader in found} == {5010}
    [worker] = [worker for loader in found for pool in loader.pools for worker in pool.workers]
    assert worker.pid == 5011
    assert worker.meter == (5011000, 5011)


def test_workers_are_read_as_they_say(proc: Proc) -> None:
    proc.process(10)
    words = {
        "PID": 77,
        "W_EPOCH": 3,
        "SEQ": 9,
        "PART": 1,
        "ROW": 5,
        "SINCE_NS": 123,
        "PHASE": status_page.WORKING,
    }
    proc.hold(
        10,
        proc.status_page(
            10, {0: words, 2: {"PID": 78, "ROW": -1, "PHASE": status_page.COLLATING}, 3: {"PID": 79}}
        ),
    )
    [loader] = proc.scan().loaders
    assert loader.reading is None
    [pool] = loader.pools
    assert pool.epoch == 3
    first, second, third = pool.workers
    assert (first.worker, first.pid, first.phase, first.since_ns, first.epoch, first.seq) == (
        0,
        77,
        "fetch",
        123,
        3,
        9,
    )
    assert (first.part, first.row, first.meter) == (1, 5, None)
    assert (second.worker, second.phase, second.row) == (2, "collate", None)
    assert (third.worker, third.phase) == (3, "idle")


def test_a_lone_worker_is_shown_from_its_first_task_on(proc: Proc) -> None:
    """Before that it may be an actor of Ray's whose loader has another worker in its place."""
    proc.process(10)
    proc.hold(10, proc.status_page(10, {0: {"PID": 11}}))
    assert proc.scan().loaders == ()


def test_many_workers_are_all_found(proc: Proc) -> None:
    proc.process(10)
    proc.hold(10, proc.status_page(10, {worker: {"PID": 100 + worker} for worker in range(192)}))
    [loader] = proc.scan().loaders
    assert [worker.worker for worker in loader.pools[0].workers] == list(range(192))


def test_a_pool_without_workers_and_without_a_record_is_no_loader(proc: Proc) -> None:
    proc.process(10)
    proc.hold(10, proc.status_page(10, {}))
    assert proc.scan().loaders == ()


def test_other_versions_and_other_files_are_said(proc: Proc) -> None:
    proc.process(10)
    proc.hold(10, proc.run_page(10, FORMAT=9))
    found = proc.scan()
    assert found.loaders == ()
    [said] = found.skipped
    assert said.startswith("process 10: ")
    assert "version 9" in said


def test_what_may_not_be_looked_into_is_said_and_what_is_gone_is_not(
    proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid in (10, 11, 12):
        proc.process(pid)
    proc.hold(12, proc.run_page(12))
    listdir = os.listdir

    def refuse(path: str) -> list[str]:
        if path.endswith("/10/fd"):
            raise PermissionError(13, "Permission denied", path)
        if path.endswith("/11/fd"):
            raise ProcessLookupError(3, "No such process", path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refuse)
    found = proc.scan()
    assert [loader.pid for loader in found.loaders] == [12]
    assert found.skipped == ("process 10: Permission denied",)


def test_processes_of_other_users_are_passed_over(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    proc.process(10)
    proc.hold(10, proc.run_page(10))
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    found = proc.scan()
    assert (found.loaders, found.skipped) == ((), ())


def test_a_descriptor_that_became_another_file_is_not_read(
    proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc.process(10)
    proc.hold(10, proc.run_page(10))
    other = proc.run_page(10)
    opens = os.open

    def late(path: str, flags: int) -> int:
        return opens(str(other) if "/fd/" in path else path, flags)

    monkeypatch.setattr(os, "open", late)
    assert proc.scan().loaders == ()


def test_a_loader_belongs_to_its_process_those_above_it_and_its_workers(proc: Proc) -> None:
    proc.process(8)
    proc.process(9, parent=8)
    proc.process(10, parent=9)
    proc.hold(10, proc.status_page(10, {0: {"PID": 77, "SINCE_NS": 1}}))
    [loader] = proc.scan().loaders
    members = [pid for pid in (7, 8, 9, 10, 11, 77) if belongs(pid, loader, str(proc.folder))]
    assert members == [8, 9, 10, 77]


def test_this_process_is_found_in_the_real_proc() -> None:
    page = RunPage.create()
    found = [loader for loader in scan().loaders if loader.pid == os.getpid()]
    page.close()
    assert page.inode in {loader.key[1] for loader in found}
    assert page.inode not in {loader.key[1] for loader in scan().loaders}
