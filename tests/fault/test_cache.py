"""The sample cache under kills, full disks and damaged files: no wrong sample is ever read."""

from __future__ import annotations

import functools
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

import stoker
from benchmarks import cache_kills
from stoker._runtime.cache.counters import counters
from stoker._runtime.cache.storage import backing
from stoker._runtime.cache.storage import store as store_module
from stoker._runtime.cache.storage.attaching import StoreHandle, StorePlan
from stoker._runtime.cache.storage.backing import find_memory
from stoker._runtime.cache.storage.store import EntryKey, Store

SLOTS = 32
TAG = 0x1234567890ABCDEF
KILLS = 1000
AT_ONCE = 5
WRITES = 200
"""How many samples a writer writes at most: a few milliseconds of work."""


@functools.cache
def content(index: int) -> bytes:
    """What the sample of an index is, and nothing else is: 1 to 20 kB."""
    return random.Random(index).randbytes(1000 + 300 * index)


def write(store: Store, index: int) -> None:
    data = content(index)
    store.append(index, EntryKey(index, 0, TAG), [data[:500], data[500:]], b"root%d" % index, b"", 1)


def read(store: Store) -> int:
    """Read all that can be found; return how many there are. A wrong byte fails."""
    found = 0
    for index in range(SLOTS):
        entry = store.find(index, EntryKey(index, 0, TAG))
        if entry is not None:
            assert bytes(store.view[entry.start : entry.root_start]) == content(index)
            assert bytes(store.view[entry.root_start : entry.root_stop]) == b"root%d" % index
            found += 1
    return found


def writer(store: Store, line: int | None) -> int:
    """Fork a process that writes until it is killed: from outside, or by itself at its n-th line in the store's code."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.alarm(30)  # it ends, whatever becomes of the test
        left = line

        def trace(frame: Any, event: str, _: Any) -> Any:
            nonlocal left
            if frame.f_code.co_filename != store_module.__file__:
                return None
            if event == "line" and left is not None:
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        if line is not None:
            sys.settrace(trace)
        order = random.Random(os.getpid())
        for _ in range(WRITES):
            write(store, order.randrange(SLOTS))
        signal.pause()
    finally:
        os._exit(1)


@pytest.fixture(params=["memory", "disk"])
def handle(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreHandle]:
    folder = None if request.param == "memory" else str(tmp_path / "cache")
    handle = StoreHandle(StorePlan(f"fault{os.getpid()}", SLOTS, 4 << 30, bytes(32), folder, "label"))
    yield handle
    handle.open().close()


def test_a_writer_killed_at_any_line_leaves_no_wrong_sample(handle: StoreHandle) -> None:
    store = handle.open()
    for line in range(100):
        pid = writer(store, line)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        read(store)
    assert read(store) > 0


def kill_writers() -> None:
    """Kill writers at random times. In a process of its own, whose forks are quick: it has no threads of OpenBLAS."""
    handle = StoreHandle(StorePlan(f"kills{os.getpid()}", SLOTS, 8 << 30, bytes(32)))
    store = handle.open()
    kept = 0
    for _ in range(KILLS // AT_ONCE):
        pids = [writer(store, None) for _ in range(AT_ONCE)]
        for pid in pids:
            time.sleep(random.random() * 0.003)
            os.kill(pid, signal.SIGKILL)
        kills = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        assert kills == [-signal.SIGKILL] * AT_ONCE
        kept = max(kept, read(store))
        if store.stored_bytes > 1 << 30:  # a fresh one, so that writers always have room
            store.close()
            handle = StoreHandle(StorePlan(f"kills{os.getpid()}", SLOTS, 8 << 30, bytes(32)))
            store = handle.open()
    assert kept > 0
    for index in range(SLOTS):
        write(store, index)
    assert read(store) == SLOTS, "something is locked"


@pytest.mark.timeout(600)
def test_a_thousand_writers_killed_at_any_time_leave_no_wrong_sample() -> None:
    script = "from tests.fault.test_cache import kill_writers; kill_writers()"
    one_thread = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **one_thread}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(600)
@pytest.mark.parametrize("place", cache_kills.PLACES)
def test_writers_killed_at_any_line_of_the_cache_leave_no_wrong_sample_and_no_file(place: str) -> None:
    """From the opening of the store to the word of the index; the benchmark of the same name kills 1,000 and more."""
    command = [sys.executable, "-m", "benchmarks.cache_kills", "--kills", "60", "--only", place]
    one_thread = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command,
        env={**os.environ, **one_thread},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 wrong, 0 locked, 0 left over" in done.stdout


def test_memory_that_another_process_has_only_begun_is_not_taken_for_the_store() -> None:
    """Two ranks that start at once: one has made the memory, and not written its header yet. Or it was killed before that."""
    plan = StorePlan(f"begun{os.getpid()}", SLOTS, 1 << 20, bytes(32))
    begun = backing.create_memory(plan.token)
    first = StoreHandle(plan)
    second = StoreHandle(plan)
    try:
        write(first.open(), 3)
        assert read(second.open()) == 1
        os.ftruncate(begun.fd, 8192)  # as far as it could come
        third = StoreHandle(plan)
        assert read(third.open()) == 1
        third.open().close()
    finally:
        begun.close()
        first.open().close()
        second.open().close()


def test_what_killed_processes_left_beside_a_store_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was to become a store, where files without a name are unknown. What is not ours stays."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    path = filled(tmp_path)
    unfinished, other = (
        path.with_name(f".{path.name}.0123456789abcdef"),
        path.with_name(".other.samples.0123"),
    )
    for each in (unfinished, other):
        each.touch()
    handle, store = reopened(tmp_path)
    assert read(store) == SLOTS
    handle.open().close()
    assert sorted(each.name for each in path.parent.iterdir()) == [other.name, path.name]
    assert not list((tmp_path / "stoker").iterdir())


def test_a_full_disk_ends_the_filling_with_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    handle = StoreHandle(StorePlan("full", SLOTS, 1 << 30, bytes(32), str(tmp_path / "cache"), "label"))
    store = handle.open()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        for index in range(SLOTS):
            write(store, index)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert 0 < read(store) < SLOTS
    assert store.full
    assert len(caplog.records) == 1
    assert "is no longer filled" in caplog.text
    store.close()


def filled(tmp_path: Path, identity: bytes = bytes(32)) -> Path:
    """The file of a store in which every sample is."""
    handle = StoreHandle(StorePlan("damage", SLOTS, 1 << 30, identity, str(tmp_path / "cache"), "label"))
    store = handle.open()
    for index in range(SLOTS):
        write(store, index)
    store.close()
    return tmp_path / "cache" / "label.samples"


def reopened(tmp_path: Path, identity: bytes = bytes(32)) -> tuple[StoreHandle, Store]:
    handle = StoreHandle(StorePlan("damage", SLOTS, 1 << 30, identity, str(tmp_path / "cache"), "label"))
    return handle, handle.open()


def test_a_truncated_file_loses_samples_and_nothing_else(tmp_path: Path) -> None:
    path = filled(tmp_path)
    os.truncate(path, path.stat().st_size // 2)
    handle, store = reopened(tmp_path)
    assert 0 < read(store) < SLOTS
    for index in range(SLOTS):
        write(store, index)
    assert read(store) == SLOTS
    handle.open().close()


def test_after_a_restart_of_the_machine_damaged_entries_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = filled(tmp_path)
    with path.open("r+b") as file:  # the index reached the disk, and some of the pages did not
        file.seek(store_module.data_start(SLOTS) + 50_000)
        file.write(bytes(20_000))
    monkeypatch.setattr("stoker._runtime.cache.storage.backing.boot_number", lambda: 7)
    handle, store = reopened(tmp_path)
    assert SLOTS // 2 < read(store) < SLOTS
    handle.open().close()


def test_after_a_restart_an_entry_whose_header_was_changed_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lengths still add up, so only the checksum tells."""
    path = filled(tmp_path)
    with path.open("r+b") as file:
        file.seek(store_module.data_start(SLOTS) + 40)
        root_start, root_bytes = struct.unpack("<II", file.read(8))
        file.seek(-8, os.SEEK_CUR)
        file.write(struct.pack("<II", root_start - 8, root_bytes + 8))
    monkeypatch.setattr("stoker._runtime.cache.storage.backing.boot_number", lambda: 7)
    handle, store = reopened(tmp_path)
    assert read(store) == SLOTS - 1
    handle.open().close()


@pytest.mark.parametrize("damage", [b"", b"stkcach9", b"stkcach1" + bytes(100), os.urandom(100_000)])
def test_a_file_that_is_no_store_is_begun_anew(
    damage: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = filled(tmp_path)
    path.write_bytes(damage)
    handle, store = reopened(tmp_path)
    assert read(store) == 0
    assert "is damaged, or of another version of stoker" in caplog.text
    handle.open().close()


def test_a_store_of_another_dataset_is_begun_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    filled(tmp_path)
    handle, store = reopened(tmp_path, b"other".ljust(32))
    assert read(store) == 0
    assert "has samples of another dataset" in caplog.text
    handle.open().close()


def test_files_of_the_store_are_private(tmp_path: Path) -> None:
    path = filled(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.chmod(0o644)
    with pytest.raises(PermissionError, match="not private to this user"):
        reopened(tmp_path)
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(PermissionError, match="link"):
        reopened(tmp_path)
    path.parent.chmod(0o755)
    with pytest.raises(PermissionError, match="chmod 700"):
        reopened(tmp_path)
    path.parent.chmod(0o1777)  # as /tmp: to close it would lock others out
    with pytest.raises(PermissionError, match=r"give one inside it: path=.*samples") as caught:
        reopened(tmp_path)
    assert "chmod" not in str(caught.value)


class Squares(Dataset[Any]):
    """Reads nothing, and takes the worker's process down at one index, once."""

    def __init__(self, length: int = 64, killer: str = "") -> None:
        self.length = length
        self.killer = killer

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if self.killer and index == 40 and not os.path.exists(self.killer):
            Path(self.killer).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.full((100,), index * index), np.arange(index + 1).sum()


def test_a_killed_worker_changes_no_batch(tmp_path: Path) -> None:
    plain = [[part.clone() for part in batch] for batch in stoker.DataLoader(Squares(), batch_size=8)]
    marker = tmp_path / "killed"
    marker.touch()  # the proof may not be killed
    cached = stoker.cache(Squares(killer=str(marker)), "10MiB")
    marker.unlink()
    with stoker.DataLoader(cached, batch_size=8, num_workers=2, restarts=2) as loader:
        for _ in range(2):
            found = [[part.clone() for part in batch] for batch in loader]
            assert all(
                torch.equal(a, b)
                for x, y in zip(plain, found, strict=True)
                for a, b in zip(x, y, strict=True)
            )
    assert marker.exists()
    assert cached.cache_info()["entries"] == 64


SHARER = """
import sys, stoker
from tests.fault.test_cache import Squares
cached = stoker.cache(Squares(), "10MiB", name=sys.argv[1])
print(cached.cache_info()["entries"], flush=True)
for index in range(64):
    cached[index]
print(cached.cache_info()["entries"], flush=True)
sys.stdin.read()
"""


def test_processes_share_a_store_by_its_name_and_the_last_one_frees_it() -> None:
    name = f"test-{os.getpid()}"
    started: list[subprocess.Popen[str]] = []
    try:
        for expected in ("0", "64"):
            process = subprocess.Popen(
                [sys.executable, "-c", SHARER, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            started.append(process)
            assert process.stdout is not None
            assert process.stdout.readline().strip() == expected
            assert process.stdout.readline().strip() == "64"
        started[0].kill()  # the one that made it
        started[0].wait()
        before = counters().totals()
        cached = stoker.cache(Squares(), "10MiB", name=name)
        assert cached[3][1] == 6
        assert counters().totals().hits == before.hits + 1
        token = cached._handle.plan.token
        del cached
        found = find_memory(token)
        assert found is not None
        found.close()
    finally:
        for process in started:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
    assert find_memory(token) is None
