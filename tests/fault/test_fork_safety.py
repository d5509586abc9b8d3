"""Rows 5 and 6: locks, thread pools and libraries that do not survive a fork.

A scene that loads a hazard runs in a process of its own: its threads would stay, and with them the choice of the start method
for every later test.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fsspec.asyn import AsyncFileSystem  # type: ignore[import-untyped]
from torch.utils.data import Dataset

import stoker
from stoker._runtime.scheduler import policy
from stoker.errors import UnsendableError, WorkerDied, WorkerStalled
from tests import warm

ROOT = Path(__file__).parents[2]
SCENE_S = 100
"""Generous: a scene that hangs is what these tests are about, and one that does not ends at once."""

STALL_S = 2.0
"""The watchdog's patience in these tests: long enough for a worker to start and to reach its sample."""

TIMEOUT_S = 60
"""Ends a wait that the watchdog failed to report."""


def played(scene: str) -> Any:
    """What a function of this module prints, as JSON, when it is called in a new process."""
    code = f"from tests.fault import test_fork_safety as scenes; scenes.{scene}()"
    run = warm.run(["-c", code], cwd=ROOT, timeout=SCENE_S)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


class Log(logging.Handler):
    """The messages of stoker's logger, in order."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []
        logging.getLogger("stoker").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


class Frame(Dataset[int]):
    """Rows found with a polars filter, which needs the compute pool."""

    def __init__(self) -> None:
        import polars

        self.frame = polars.DataFrame({"index": list(range(1000)), "value": [n * n for n in range(1000)]})

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        import polars

        found = self.frame.lazy().filter(polars.col("index") == index).sort("value").collect()
        return int(found["value"][0])


def polars_in_workers() -> None:
    log = Log()
    dataset = Frame()
    dataset[3]
    loader = stoker.DataLoader(dataset, batch_size=2, num_workers=2, name="frames")
    epochs = [torch.cat(list(loader)).tolist() for _ in range(2)]
    print(
        json.dumps({"epochs": epochs, "log": log.messages, "context": loader.multiprocessing_context is None})
    )


def polars_that_cannot_travel() -> None:
    log = Log()
    dataset: Any = Frame()
    dataset.lock = threading.Lock()
    loader = stoker.DataLoader(Squares(dataset), batch_size=2, num_workers=1)
    rows = torch.cat(list(loader)).tolist()
    print(json.dumps({"rows": rows, "log": log.messages}))


class Squares(Dataset[int]):
    """Holds another dataset and does not use it."""

    def __init__(self, other: Any) -> None:
        self.other = other

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return index * index


class Bucket(AsyncFileSystem):
    """A file whose content is its name."""

    async def _cat_file(self, path: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
        await asyncio.sleep(0)
        return path.encode()


class Remote(Dataset[int]):
    """Reads through a file system that works on fsspec's event loop, as s3fs and gcsfs do."""

    def __init__(self) -> None:
        self.bucket = Bucket()

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        return int(self.bucket.cat_file(str(index)))


def fsspec_in_workers() -> None:
    log = Log()
    dataset = Remote()
    dataset[0]
    rows = torch.cat(list(stoker.DataLoader(dataset, batch_size=2, num_workers=1))).tolist()
    print(json.dumps({"rows": rows, "log": log.messages}))


class Images(Dataset[Any]):
    """OpenCV operations that its pool shares out."""

    def __init__(self) -> None:
        self.image = np.arange(1200 * 1200 * 3, dtype=np.uint8).reshape(1200, 1200, 3)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        import cv2

        blurred = cv2.GaussianBlur(self.image, (31, 31), 5)
        hues = cv2.cvtColor(cv2.resize(blurred, (600, 600)), cv2.COLOR_BGR2HSV)
        return int(np.asarray(hues, dtype=np.int64).sum()) + index


def opencv_in_workers() -> None:
    import cv2

    log = Log()
    cv2.setNumThreads(4)
    dataset = Images()
    expected = [dataset[index] for index in range(4)]
    busy = threading.Event()
    over = threading.Event()

    def keep_busy() -> None:
        while not over.is_set():
            dataset[0]
            busy.set()

    thread = threading.Thread(target=keep_busy)
    thread.start()
    busy.wait()
    found = [
        torch.cat(list(stoker.DataLoader(dataset, num_workers=2, multiprocessing_context=method))).tolist()
        for method in (None, "fork")
    ]
    over.set()
    thread.join()
    print(json.dumps({"expected": expected, "found": found, "log": log.messages}))


class Numbers(Dataset[Any]):
    """Operations that OpenMP, MKL and OpenBLAS share out among threads."""

    def __init__(self) -> None:
        self.table = torch.linspace(0, 1, 500 * 500, dtype=torch.float64).reshape(500, 500)
        self.row = torch.linspace(1, 0, 1_000_000)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        array = self.table.numpy()
        return (self.table @ self.table)[index], (array @ array)[index], self.row.sort().values[index], index


def openmp_in_workers() -> None:
    log = Log()
    torch.set_num_threads(4)
    dataset = Numbers()
    expected = list(stoker.DataLoader(dataset))
    torch.jit.wait(torch.jit.fork(torch.sort, dataset.row))
    found = list(stoker.DataLoader(dataset, num_workers=2, multiprocessing_context="fork"))
    close = [
        torch.allclose(a, b) for e, f in zip(expected, found, strict=True) for a, b in zip(e, f, strict=True)
    ]
    print(json.dumps({"close": close, "log": log.messages}))


def test_polars_in_workers() -> None:
    """Row 6: a filter in a forked worker waits for ever; the loader starts its workers from the fork server instead."""
    told = played("polars_in_workers")
    assert told["epochs"] == [[n * n for n in range(8)]] * 2
    assert told["context"], "the attribute stays what the user gave"
    (message,) = told["log"]
    assert message.startswith("frames: ")
    assert "polars" in message
    assert "module state" in message


def test_polars_and_a_dataset_that_cannot_travel() -> None:
    """Row 6: workers are forked then, and the line says what keeps the dataset from travelling."""
    told = played("polars_that_cannot_travel")
    assert told["rows"] == [0, 1, 4, 9]
    (message,) = told["log"]
    assert "dataset.other.lock (lock)" in message
    assert "polars" in message


def test_a_file_system_of_fsspec_in_workers() -> None:
    """Row 6: s3fs, gcsfs and the like refuse to work in a forked process; in one from the fork server they work."""
    told = played("fsspec_in_workers")
    assert told["rows"] == list(range(6))
    (message,) = told["log"]
    assert "fsspec" in message


def test_opencv_in_forked_workers_with_a_busy_pool_in_the_parent() -> None:
    """Row 6: OpenCV's pool answers in a forked worker, which uses no thread of it: fork stays."""
    told = played("opencv_in_workers")
    assert told["found"] == [told["expected"]] * 2
    assert told["log"] == []


def test_openmp_and_blas_in_forked_workers() -> None:
    """Row 5: pools of torch and numpy that the parent has used do not hang workers that do the same operations."""
    told = played("openmp_in_workers")
    assert len(told["close"]) == 16
    assert all(told["close"])
    assert told["log"] == []


class Locked(Dataset[int]):
    """Takes a lock for every sample."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        with self.lock:
            return index


class Pooled(Dataset[int]):
    """Reads every sample in a thread pool of its own."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1)
        self.pool.submit(int).result()

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return self.pool.submit(int, index).result()


class PooledAnew(Pooled):
    """Leaves its pool behind when it travels."""

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]


@contextmanager
def held(lock: Any) -> Iterator[None]:
    """Another thread has the lock."""
    has, over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            has.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    has.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()


def stalled(dataset: Any, **options: Any) -> str:
    """What the watchdog says about the first batch. The wait ends with it: the warning is raised."""
    with stoker.DataLoader(
        dataset, num_workers=1, multiprocessing_context="fork", timeout=TIMEOUT_S, **options
    ) as loader:
        with warnings.catch_warnings(), pytest.raises(WorkerStalled) as caught:
            warnings.simplefilter("error", WorkerStalled)
            next(iter(loader))
        return str(caught.value)


def assert_names_the_sample(message: str) -> None:
    assert "index 0" in message
    assert "test_fork_safety.py" in message
    assert "__getitem__" in message


def test_a_lock_held_at_the_fork_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 5: nobody releases it in the worker; the message shows the line that waits."""
    monkeypatch.setattr(policy, "PATIENCE_S", STALL_S)
    dataset = Locked()
    with held(dataset.lock):
        assert_names_the_sample(stalled(dataset))


def test_a_thread_pool_that_was_forked_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 5: its threads are gone and nobody takes the work."""
    monkeypatch.setattr(policy, "PATIENCE_S", STALL_S)
    dataset = Pooled()
    try:
        assert_names_the_sample(stalled(dataset))
    finally:
        dataset.pool.shutdown()


@pytest.mark.parametrize("make", [Locked, Pooled])
def test_what_cannot_travel_is_named(make: Callable[[], Any]) -> None:
    """Row 5: with forkserver nothing hangs; a lock or a pool on the dataset is refused by its path."""
    dataset = make()
    with pytest.raises(UnsendableError, match=r"dataset\.(lock|pool)"):
        next(iter(stoker.DataLoader(dataset, num_workers=1, multiprocessing_context="forkserver")))
    if make is Pooled:
        dataset.pool.shutdown()


def test_a_pool_left_behind_works_from_the_fork_server() -> None:
    """Row 5: what the dataset makes anew where it arrives has its threads."""
    dataset = PooledAnew()
    loader = stoker.DataLoader(dataset, batch_size=2, num_workers=1, multiprocessing_context="forkserver")
    assert torch.cat(list(loader)).tolist() == [0, 1, 2, 3]
    dataset.pool.shutdown()


def _four_threads(worker: int) -> None:
    torch.set_num_threads(4)


def _one_opencv_thread(worker: int) -> None:
    import cv2

    cv2.setNumThreads(1)


def _print_stalled(dataset: Any, **options: Any) -> None:
    warnings.simplefilter("error")
    policy.PATIENCE_S = STALL_S
    dataset[0]
    print(json.dumps(stalled(dataset, **options)))


def polars_forked() -> None:
    _print_stalled(Frame())


def openmp_with_threads_in_workers() -> None:
    torch.set_num_threads(4)
    _print_stalled(Numbers(), worker_init_fn=_four_threads)


def opencv_with_a_smaller_pool_in_workers() -> None:
    import cv2

    cv2.setNumThreads(4)
    try:
        _print_stalled(Images(), worker_init_fn=_one_opencv_thread)
    except (
        WorkerDied
    ) as error:  # to join a thread that is gone may also crash: pthread_join says nothing about it
        print(json.dumps(str(error)))


@pytest.mark.parametrize("scene", ["polars_forked", "openmp_with_threads_in_workers"])
def test_a_pool_that_died_in_a_fork_the_user_asked_for_is_reported(scene: str) -> None:
    """Rows 5 and 6: what the user's own choice lets hang is reported with the line that waits."""
    assert_names_the_sample(played(scene))


def test_opencv_made_to_join_threads_that_are_gone_is_reported() -> None:
    """Row 6: a smaller pool than the parent used means threads to join; the worker hangs or crashes before its first sample."""
    message = played("opencv_with_a_smaller_pool_in_workers")
    assert "has not started yet" in message or "had not started yet" in message
    assert "_one_opencv_thread" in message
