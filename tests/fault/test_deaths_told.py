"""What is told of a worker's death: torch's words first, then where it was, why it likely died and what its code was doing."""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import re
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, get_worker_info

import stoker
from stoker._runtime.scheduler import policy
from stoker.errors import WorkerDied
from tests.fault.datasets import Marks
from tests.fault.rows import METHODS, run, steps

KILLED = r"DataLoader worker \(pid \d+\) is killed by signal: "
EXITED = r"DataLoader worker \(pid\(s\) \d+\) exited unexpectedly with exit code "


def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def read_address_zero() -> None:
    ctypes.string_at(0)


def be_sent_a_segfault() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def read_a_shortened_file() -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate(2 * mmap.PAGESIZE)
        mapped = mmap.mmap(file.fileno(), 2 * mmap.PAGESIZE)
        file.truncate(0)
        mapped[mmap.PAGESIZE]


def abort() -> None:
    os.abort()


def abort_in_a_native_thread() -> None:
    """A thread of C code that Python does not know gives up; this one waits for it."""
    libc = ctypes.CDLL(None)
    thread = ctypes.c_ulong()
    libc.pthread_create(ctypes.byref(thread), None, libc.abort, None)
    libc.pthread_join(thread, None)


def leave_at_once() -> None:
    os._exit(3)


def leave_in_order() -> None:
    sys.exit(3)


WAYS: dict[Callable[[], None], tuple[str, str, bool]] = {
    be_killed: (KILLED + r"Killed \(SIGKILL\)\.", "somebody sent it SIGKILL", False),
    read_address_zero: (
        KILLED + r"Segmentation fault \(SIGSEGV\)\.",
        "native code (a decoder or an extension module) used memory",
        True,
    ),
    be_sent_a_segfault: (
        KILLED + r"Segmentation fault \(SIGSEGV\)\.",
        "native code (a decoder or an extension module) used memory",
        True,
    ),
    read_a_shortened_file: (KILLED + r"Bus error \(SIGBUS\)\.", "a memory-mapped file was shortened", True),
    abort: (KILLED + r"Aborted \(SIGABRT\)\.", "native code aborted", True),
    abort_in_a_native_thread: (KILLED + r"Aborted \(SIGABRT\)\.", "native code aborted", True),
    leave_at_once: (EXITED + "3", "code of the dataset (or a library it uses) ended the process", False),
    leave_in_order: (EXITED + "3", "code of the dataset (or a library it uses) ended the process", True),
}
"""Ways to die: torch's words for them, the likely cause, and whether a Python stack is left."""


class Fatal:
    """Row ``at`` ends its worker; ``work`` is how much each row computes first. ``once`` are marks for dying only once."""

    def __init__(
        self, way: Callable[[], None], at: int, *, rows: int = 100, work: int = 0, once: Marks | None = None
    ) -> None:
        self.way = way
        self.at = at
        self.rows = rows
        self.work = work
        self.once = once

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> int:
        sum(range(self.work))
        if index == self.at and (self.once is None or self.once.set("death")):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            self.way()
        return index


class FatalStream(IterableDataset[int]):
    """Each worker's share of a range; at one value its worker ends."""

    def __init__(self, way: Callable[[], None], at: int) -> None:
        self.way = way
        self.at = at

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        for value in range(info.id, 60, info.num_workers):
            if value == self.at:
                self.way()
            yield value


def loader_of(dataset: Any, **options: Any) -> Any:
    return stoker.DataLoader(
        dataset, **{"batch_size": 10, "num_workers": 2, "multiprocessing_context": "fork", **options}
    )


def the_error(loader: Any) -> str:
    """The text of the one error of an epoch."""
    [error] = [found for found in steps(loader) if isinstance(found, Exception)]
    assert type(error) is WorkerDied
    assert isinstance(error, RuntimeError)
    return str(error)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a few starts take longer than a wait may be without a warning, which is an error here."""
    monkeypatch.setattr(policy, "PATIENCE_S", 100.0)


@pytest.fixture
def healed(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The deaths that were logged."""
    caplog.set_level(logging.INFO, logger="stoker")

    def messages() -> list[str]:
        records = [record for record in caplog.records if record.name == "stoker"]
        assert all(record.levelno == logging.WARNING for record in records)
        return [record.getMessage() for record in records]

    return messages


@pytest.mark.parametrize("restarts", [0, 2])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_way_to_die(way: Callable[[], None], restarts: int) -> None:
    """Row 8, and its relatives: the signal or exit code, the sample, the likely cause and the user's own line."""
    exit_text, cause, leaves_stack = WAYS[way]
    text = the_error(loader_of(Fatal(way, 53), restarts=restarts))
    first, where, *rest = text.splitlines()
    assert re.fullmatch(exit_text, first)
    assert re.fullmatch(r"  worker [01] was on dataset index 53 \(row 3 of batch 5\)", where)
    assert rest[0].startswith(f"  likely cause: {cause}")
    named = [
        line for line in rest[1:] if re.search(rf"test_deaths_told\.py\", line \d+,? in {way.__name__}", line)
    ]
    if leaves_stack:
        assert rest[1] == "  its Python stack:"
        line = way.__code__.co_firstlineno
        [number] = [int(number) for entry in named for number in re.findall(r"line (\d+)", entry)]
        assert line < number < line + 8
        assert "__getitem__" in text
    else:
        assert named == []
        assert len(rest) == 1


@pytest.mark.parametrize("restarts", [0, 2])
@pytest.mark.parametrize(
    "options",
    [
        {"split_batches": False},
        {"batch_size": 80, "split_batches": True},
        {"batch_size": 7, "num_workers": 1},
        {"batch_size": 9, "shuffle": True},
        {"batch_size": 9, "shuffle": True, "rng": "sample"},
        {"batch_size": 9, "rng": "torch"},
        {"batch_size": None},
        {"batch_sampler": [(4, 5, 6), (53, 7), (8,)]},
    ],
    ids=["whole", "split", "one worker", "shuffled", "by sample", "bound", "unbatched", "batch sampler"],
)
@pytest.mark.parametrize("work", [0, 4000], ids=["quick rows", "slow rows"])
def test_the_index_is_exact(options: dict[str, Any], work: int, restarts: int) -> None:
    if "batch_sampler" in options:
        options = {"batch_size": 1, **options}
    dataset = Fatal(be_killed, 53, work=work)
    text = the_error(loader_of(dataset, restarts=restarts, **options))
    assert "was on dataset index 53" in text
    if options.get("batch_size") is not None:
        assert re.search(r"dataset index 53 \(row \d+ of batch \d+\)", text)


@pytest.mark.parametrize("method", METHODS)
def test_under_every_start_method(method: str) -> None:
    text = the_error(loader_of(Fatal(read_address_zero, 53), multiprocessing_context=method, restarts=1))
    assert re.match(WAYS[read_address_zero][0], text)
    assert "dataset index 53" in text
    assert "read_address_zero" in text


@pytest.mark.parametrize(
    "work",
    [
        4000,
        0,
    ],
    ids=["slow rows", "quick rows"],
)
def test_a_death_that_is_healed_is_logged_once_with_the_whole_story(
    work: int, tmp_path: Path, healed: Callable[[], list[str]]
) -> None:
    dataset = Fatal(read_address_zero, 53, work=work, once=Marks(tmp_path))
    loader = loader_of(dataset, name="train")
    assert torch.cat(steps(loader)).tolist() == list(range(100))
    [message] = healed()
    assert message.startswith("train: DataLoader worker (pid ")
    assert "Segmentation fault (SIGSEGV)" in message
    assert "a new worker takes its place" in message.lower()
    assert "likely cause: native code" in message
    assert "in read_address_zero" in message
    assert loader.stats()["worker_deaths"] == 1
    index = re.search(r"was on dataset index (\d+)", message)
    assert index is None or index[1] == "53", "no other index may be blamed"
    assert index is not None or work == 0


def test_every_death_of_a_hopeless_sample_is_logged_and_raised_once(healed: Callable[[], list[str]]) -> None:
    loader = loader_of(Fatal(leave_at_once, 53, work=4000), restarts=2)
    assert "dataset index 53" in the_error(loader)
    assert len(healed()) == 3
    assert all("dataset index 53" in message for message in healed())
    assert loader.stats()["worker_deaths"] == 3


def test_without_restarts_nothing_is_logged(healed: Callable[[], list[str]]) -> None:
    the_error(loader_of(Fatal(be_killed, 53), restarts=0))
    assert healed() == []


def test_a_killed_worker_without_work_is_on_no_batch(healed: Callable[[], list[str]]) -> None:
    loader = loader_of(Fatal(be_killed, -1), persistent_workers=True)
    with loader:
        assert len(steps(loader)) == 10
        worker = loader._iterator._workers[0]
        os.kill(worker.pid, signal.SIGKILL)
        worker.join()
        del worker
        assert torch.cat(steps(loader)).tolist() == list(range(100))
    [message] = healed()
    assert "it was on no batch" in message


def fatal_collation(samples: list[int]) -> torch.Tensor:
    if 53 in samples:
        leave_in_order()
    return torch.tensor(samples)


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_death_in_collation_blames_no_index(restarts: int) -> None:
    text = the_error(loader_of(Fatal(be_killed, -1), collate_fn=fatal_collation, restarts=restarts))
    assert "batch 5 of dataset indices [50, 51, 52, 53, 54, 55, 56, 57, … (10 in all)]" in text
    assert "(row" not in text
    assert "in fatal_collation" in text


def test_a_death_in_collation_says_so() -> None:
    text = the_error(loader_of(Fatal(be_killed, -1), collate_fn=fatal_collation, restarts=0))
    assert "the collation of batch 5" in text


def fatal_conversion(sample: int) -> int:
    if sample == 53:
        leave_at_once()
    return sample


def test_a_death_in_the_conversion_of_one_sample() -> None:
    text = the_error(
        loader_of(Fatal(be_killed, -1), batch_size=None, collate_fn=fatal_conversion, restarts=0)
    )
    assert "dataset index 53" in text


@pytest.mark.parametrize("restarts", [0, 2])
def test_a_streams_worker_is_told_by_its_batch(restarts: int) -> None:
    """Worker 1 gives batches 1, 3, 5: its value 27 is the fourth of its second one."""
    iterator = iter(loader_of(FatalStream(be_killed, 27), restarts=restarts))
    assert [len(next(iterator)) for _ in range(3)] == [10, 10, 10]
    with pytest.raises(WorkerDied, match=KILLED) as caught:
        next(iterator)
    assert "\n  worker 1 was on batch 3\n" in str(caught.value)
    assert "index" not in str(caught.value)
    del caught
    iterator._shutdown_workers()


def test_a_stream_that_always_kills_ends() -> None:
    """A dataset that always crashes ends in one error, not in a loop, also for who goes on after it."""
    iterator = iter(loader_of(FatalStream(be_killed, 27), restarts=0))
    found: list[Any] = []
    for _ in range(20):
        try:
            found.append(next(iterator))
        except RuntimeError as error:
            found.append(str(error))
        except StopIteration:
            break
    iterator._shutdown_workers()
    assert sum(isinstance(step, str) for step in found) == 1
    assert sorted(torch.cat([step for step in found if not isinstance(step, str)]).tolist()) == [
        *range(20),
        *range(20, 60, 2),
    ]


def refuse_to_start(worker: int) -> None:
    leave_in_order()


@pytest.mark.parametrize(
    ("method", "restarts"), [("fork", 0), ("fork", 2), ("forkserver", 0), ("forkserver", 2), ("spawn", 0)]
)
def test_a_death_before_the_start_says_so(method: str, restarts: int) -> None:
    loader = loader_of(
        Fatal(be_killed, -1),
        worker_init_fn=refuse_to_start,
        multiprocessing_context=method,
        restarts=restarts,
    )
    text = the_error(loader)
    assert re.match(EXITED + "3: before it could take any work", text)
    assert "it had not started yet" in text
    assert "in refuse_to_start" in text
    assert "dataset index" not in text


def fail_to_start(worker: int) -> None:
    raise LookupError(f"no shard for worker {worker}")


@pytest.mark.parametrize("executor", ["process", "thread"])
def test_a_failing_worker_init_fn_gives_its_own_error_every_time(executor: str) -> None:
    """Also seen: another ``next()`` gave an unrelated error."""
    options = {"multiprocessing_context": None} if executor == "thread" else {}
    iterator = iter(
        loader_of(Fatal(be_killed, -1), worker_init_fn=fail_to_start, executor=executor, **options)
    )
    for _ in range(4):
        with pytest.raises((LookupError, RuntimeError), match=r"no shard for worker [01]") as caught:
            next(iterator)
        del caught
    iterator._shutdown_workers()


DEBUG = """
import sys
import stoker

class Odd:
    def __len__(self):
        return 12

    def __getitem__(self, index):
        if index == 5:
            breakpoint()
        return index

if __name__ == "__main__":
    loader = stoker.DataLoader(Odd(), batch_size=4, num_workers=1, multiprocessing_context=sys.argv[1])
    iterator = iter(loader)
    for step in range(3):
        try:
            print(next(iterator).tolist())
        except Exception as error:
            print("", type(error).__name__, *error.__notes__, sep="\\n")
"""


@pytest.mark.parametrize("method", METHODS)
def test_a_breakpoint_in_a_worker_says_how_to_debug(method: str, tmp_path: Path) -> None:
    """Also seen: ``breakpoint()`` in a worker dies with BdbQuit and not a word. In a script: pytest has its own debugger."""
    done = run(DEBUG, method, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    # Two processes write to one stream: the worker's debugger may begin on the trainer's line.
    assert re.findall(r"\[\d+(?:, \d+)*\]", done.stdout) == ["[0, 1, 2, 3]", "[8, 9, 10, 11]"]
    assert "BdbQuit" in lines
    assert any("set num_workers=0 to debug" in line for line in lines)
    assert any("dataset index 5" in line for line in lines)


OOM = """
import os, sys
import stoker

LIMIT = 200 << 20

class Greedy:
    def __len__(self):
        return 40

    def __getitem__(self, index):
        if index == 23:
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")
            hoard = [bytearray(LIMIT // 8) for _ in range(24)]
            for block in hoard:
                block[::4096] = b"x" * len(block[::4096])
        return index

folder, limit_name = sys.argv[1:]
with open(f"{folder}/{limit_name}", "w") as file:
    file.write(str(LIMIT))
with open(f"{folder}/cgroup.procs", "w") as file:
    file.write(str(os.getpid()))
loader = stoker.DataLoader(Greedy(), batch_size=10, num_workers=2, multiprocessing_context="fork", restarts=0)
for step in range(4):
    iterator = iter(loader) if step == 0 else iterator
    try:
        next(iterator)
    except RuntimeError as error:
        print(error)
"""


@pytest.fixture
def memory_cgroup() -> Iterator[tuple[Path, str]]:
    """A new memory cgroup, and the name of the file that limits it."""
    root = Path("/sys/fs/cgroup")
    parent, name = (
        (root / "memory", "memory.limit_in_bytes") if (root / "memory").is_dir() else (root, "memory.max")
    )
    folder = parent / f"stoker-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    try:
        if not os.access(folder / name, os.W_OK):
            pytest.skip("the memory controller is not available to new cgroups here")
        yield folder, name
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """A process may be counted for a moment after it was collected."""
    for _ in range(100_000):
        try:
            return folder.rmdir()
        except OSError:
            os.sched_yield()
    return folder.rmdir()


def test_an_oom_kill_is_told_with_the_limit(memory_cgroup: tuple[Path, str]) -> None:
    """Row 8: ``killed by signal: Killed`` and nothing else."""
    folder, name = memory_cgroup
    done = run(OOM, str(folder), name)
    assert done.returncode == 0, done.stderr
    assert re.match(KILLED + "Killed", done.stdout), done.stdout + done.stderr
    assert "dataset index 23 (row 3 of batch 2)" in done.stdout
    assert (
        "likely cause: out of memory: the kernel's OOM killer struck in this cgroup (limit 200 MiB, "
        in done.stdout
    )
    assert "the worker had " in done.stdout
