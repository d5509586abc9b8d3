"""Rows about processes beside the workers: fd servers, resource trackers, forks of a loader's owner."""

from __future__ import annotations

import gc
import os
import select
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import stoker
from tests.compat.compare import assert_same
from tests.fault.rows import Made, run, said

GONE_S = 10.0
"""Bound on a wait that ends at once when all is well."""

FILE_SYSTEM = """
    import os, sys
    import psutil
    import torch
    from stoker import DataLoader

    class Rows(torch.utils.data.Dataset):
        def __init__(self, shared):
            self.tensors = [torch.full((5000,), float(number)) for number in range(40)]
            if shared:
                for tensor in self.tensors:
                    tensor.share_memory_()

        def __len__(self):
            return 40

        def __getitem__(self, index):
            return self.tensors[index].clone()

    if __name__ == "__main__":
        torch.multiprocessing.set_sharing_strategy("file_system")
        shared = sys.argv[2] == "shared"
        dataset = Rows(shared)
        loader = DataLoader(
            dataset, batch_size=2, num_workers=2, persistent_workers=True, multiprocessing_context=sys.argv[1]
        )
        names = set(os.listdir("/dev/shm"))
        kept = list(loader)
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        if not shared:
            assert "torch_shm_manager" not in {process.name() for process in processes}
        ours = tuple(f"torch_{process.pid}_" for process in processes)
        new = set(os.listdir("/dev/shm")) - names
        assert shared or not [name for name in new if name.startswith(ours)]
        assert [float(batch[1, -1]) for batch in kept] == list(range(1, 40, 2))
        loader.close()
        print(len(kept))
"""


@pytest.mark.parametrize(
    ("method", "tensors"), [("fork", "private"), ("forkserver", "shared"), ("forkserver", "private")]
)
def test_the_file_system_strategy(method: str, tensors: str, tmp_path: Path) -> None:
    """Row 29: batches need no file by name, whatever strategy torch was told; tensors the user shared so do travel."""
    assert said(run(FILE_SYSTEM, method, tensors, folder=tmp_path)) == ["20"]


def listeners() -> set[str]:
    """The sockets of this process that somebody could connect to."""
    found: set[str] = set()
    for name, column, inode, wanted in (
        ("unix", 3, 6, "00010000"),
        ("tcp", 3, 9, "0A"),
        ("tcp6", 3, 9, "0A"),
    ):
        with open(f"/proc/self/net/{name}") as table:
            fields = [line.split() for line in table][1:]
        found.update(f"socket:[{entry[inode]}]" for entry in fields if entry[column] == wanted)
    ours = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            ours.add(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:  # the descriptor that lists the folder
            continue
    return found & ours


def tensors(index: int) -> Any:
    return {"row": torch.full((5000,), float(index)), "name": str(index)}


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_iterating_starts_no_thread_and_no_server(method: str) -> None:
    """Row 32: where nobody serves descriptors, no connection to a server can be reset."""
    threads, sockets = set(threading.enumerate()), listeners()
    loader = stoker.DataLoader(Made(tensors), batch_size=2, num_workers=2, multiprocessing_context=method)
    kept = []
    for batch in loader:
        kept.append(batch)
        assert set(threading.enumerate()) == threads
        assert listeners() <= sockets
    assert len(kept) == 6


class Belled(Dataset[torch.Tensor]):
    """Tensors; a bell rings for each that was made."""

    def __init__(self, bell: str) -> None:
        self.bell = bell

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        with open(self.bell, "wb") as bell:
            bell.write(b"!")
        return torch.full((5000,), float(index))


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_worker_that_is_gone_takes_no_batch_with_it(method: str, tmp_path: Path) -> None:
    """Row 32: batches that were made and not yet taken when their workers died; torch asks the dead for descriptors."""
    bell = tmp_path / "bell"
    os.mkfifo(bell)
    fd = os.open(bell, os.O_RDWR)
    iterator: Any = iter(
        stoker.DataLoader(Belled(str(bell)), num_workers=2, prefetch_factor=4, multiprocessing_context=method)
    )
    for _ in range(8):
        assert os.read(fd, 1) == b"!"
    for worker in iterator._workers:
        watch = os.pidfd_open(worker.pid)
        os.kill(worker.pid, signal.SIGKILL)
        gone, _, _ = select.select([watch], [], [], GONE_S)
        os.close(watch)
        assert gone
    del worker
    assert_same([torch.full((1, 5000), float(index)) for index in range(12)], list(iterator))
    os.close(fd)


HELPER_KILLED = """
    import os, select, signal, sys
    from multiprocessing import forkserver, resource_tracker
    import torch
    from stoker import DataLoader

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, index):
            return torch.full((5000,), float(index))

    def kill(pid):
        watch = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        assert select.select([watch], [], [], 10)[0]
        os.close(watch)

    if __name__ == "__main__":
        method, helper = sys.argv[1:]
        loader = DataLoader(Rows(), batch_size=2, num_workers=1, multiprocessing_context=method)
        for epoch in range(2):
            for number, batch in enumerate(loader):
                assert batch[0, 0] == batch[0, -1] == 2 * number
                if number == 3 and epoch == 0:
                    if helper == "tracker":
                        kill(resource_tracker._resource_tracker._pid)
                    else:
                        kill(forkserver._forkserver._forkserver_pid)
            print(number + 1)
"""


@pytest.mark.parametrize(("method", "helper"), [("spawn", "tracker"), ("forkserver", "server")])
def test_a_helper_that_is_killed(method: str, helper: str, tmp_path: Path) -> None:
    """Row 32: this epoch and the next one do without it; at most multiprocessing says that it starts a new one."""
    done = run(HELPER_KILLED, method, helper, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["20", "20"]
    assert "Traceback" not in done.stderr


class Collecting(Dataset[int]):
    """Every sample is a garbage collection in the worker."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        gc.collect()
        return index


class Cycle:
    """Refers to itself, so that only a garbage collection ends it."""

    def __init__(self, iterator: Any) -> None:
        self.iterator = iterator
        self.itself = self


@pytest.mark.parametrize("persistent", [True, False])
def test_an_old_iterator_collected_in_a_new_fork(persistent: bool, capfd: pytest.CaptureFixture[str]) -> None:
    """Row 50: torch says ``can only test a child process`` from ``__del__``, in every worker of the new loader."""
    gc.disable()
    try:
        old = stoker.DataLoader(Made(int), batch_size=4, num_workers=2, persistent_workers=persistent)
        iterator: Any = iter(old)
        assert next(iterator).tolist() == [0, 1, 2, 3]
        watches = [os.pidfd_open(worker.pid) for worker in iterator._workers]
        Cycle(iterator)
        del iterator
        new = stoker.DataLoader(Collecting(), batch_size=2, num_workers=2, multiprocessing_context="fork")
        assert [batch.tolist() for batch in new] == [[0, 1], [2, 3], [4, 5]]
        gone, _, _ = select.select(watches, [], [], 0)
        assert gone == [], "a worker of the old iterator was ended by a process that is not its parent"
    finally:
        gc.enable()
    gc.collect()
    old.close()
    for watch in watches:
        os.close(watch)
    assert capfd.readouterr().err == ""
