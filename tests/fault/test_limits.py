"""Narrow places: few descriptors, no room for a process, a bad TMPDIR, a daemonic parent, another device."""

from __future__ import annotations

import errno
import multiprocessing.util
import os
import resource
import select
import signal
import subprocess
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from multiprocessing import forkserver, process
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import stoker
from stoker._runtime.executors.process import launcher
from stoker.errors import StartRefused
from tests import warm

GONE_S = 10.0
"""Bound on a wait that ends at once when all is well; only a worker that stays makes it run out."""

METHODS = ("fork", "spawn", "forkserver")


class Rows(Dataset[torch.Tensor]):
    """Eight rows that are made, not read: the default device decides where."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3000,), float(index)) + torch.rand(3000)


def firsts(loader: Any) -> list[int]:
    return [int(row[0]) for batch in loader for row in batch]


def run(source: str, *args: str, folder: Path, **variables: str) -> list[str]:
    """The lines that a training script prints; it must succeed, and be silent otherwise."""
    path = folder / "train.py"
    path.write_text(textwrap.dedent(source))
    done = warm.run([str(path), *args], timeout=110, env=warm.environment(**variables))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def refuse(number: int) -> Callable[..., Any]:
    def refused(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return refused


NO_MEMORY = (errno.ENOMEM, ["MiB resident", "MiB are available", "vm.overcommit_memory is", "forkserver"])
NO_PROCESS = (errno.EAGAIN, ["processes and threads (hard limit", "ulimit -u"])


@pytest.mark.parametrize(
    ("method", "number", "told"), [("fork", *NO_MEMORY), ("fork", *NO_PROCESS), ("spawn", *NO_MEMORY)]
)
def test_a_refused_process_is_named_with_the_numbers(
    method: str, number: int, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 45."""
    loader = stoker.DataLoader(Rows(), num_workers=1, persistent_workers=True, multiprocessing_context=method)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fork", refuse(number))
        patch.setattr(multiprocessing.util, "spawnv_passfds", refuse(number))
        with pytest.raises(StartRefused) as caught:
            iter(loader)
    error = caught.value
    assert error.errno == number
    assert isinstance(error.__cause__, OSError)
    for text in (method, os.strerror(number), "fewer workers", "executor='thread'", *told):
        assert text in str(error) or (text == "forkserver" and method != "fork")
    assert firsts(loader) == list(range(8))
    loader.close()


def test_a_fork_server_that_ends_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 45. It forks for us: what it is refused ends it, and here the connection ends."""

    def ended(fd: int) -> int:
        raise EOFError("unexpected EOF")

    loader = stoker.DataLoader(Rows(), num_workers=1, multiprocessing_context="forkserver")
    with monkeypatch.context() as patch:
        patch.setattr(forkserver, "read_signed", ended)
        with pytest.raises(StartRefused, match="the fork server ended") as caught:
            iter(loader)
    assert caught.value.errno == errno.EPIPE
    assert firsts(loader) == list(range(8))


@pytest.fixture
def spare_descriptors() -> Iterator[Callable[[int], None]]:
    """Call it with how many more descriptors this process may open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    filled: list[int] = []

    def spare(count: int) -> None:
        taken = max(int(name) for name in os.listdir("/proc/self/fd"))
        filled.extend(os.dup(0) for _ in range(taken + 1 - len(os.listdir("/proc/self/fd"))))
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken + 1 + count, before[1]))

    yield spare
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    for fd in filled:
        os.close(fd)


@pytest.mark.parametrize(
    ("method", "count"),
    [*((method, count) for method in ("fork", "forkserver") for count in (8, 12, 16)), ("spawn", 12)],
)
def test_descriptors_that_run_out_are_counted(
    method: str, count: int, spare_descriptors: Callable[[int], None]
) -> None:
    """Row 45. The leak guard sees to it that a start which fails halfway keeps none."""
    options: dict[str, Any] = {"multiprocessing_context": method}
    # What is opened once and kept, by whoever is first, is no leak.
    assert firsts(stoker.DataLoader(Rows(), num_workers=1, **options)) == list(range(8))
    loader = stoker.DataLoader(Rows(), num_workers=40, **options)
    spare_descriptors(count)
    with pytest.raises(OSError, match="Too many open files") as caught:
        iter(loader)
    assert caught.value.errno == errno.EMFILE
    if isinstance(caught.value, StartRefused):
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert f"of {limit} descriptors in use" in str(caught.value)
        assert "ulimit -n" in str(caught.value)


@pytest.mark.parametrize(("method", "cost"), [("fork", 2), ("forkserver", 4)])
def test_what_a_worker_costs_the_parent(method: str, cost: int) -> None:
    options: dict[str, Any] = {"multiprocessing_context": method, "persistent_workers": True}
    with stoker.DataLoader(Rows(), num_workers=2, **options) as loader:  # one alone has no template
        list(loader)
        few = len(os.listdir("/proc/self/fd"))
    deadline = time.monotonic() + 30
    with stoker.DataLoader(Rows(), num_workers=4, **options) as loader:
        list(loader)
        # The forker that made the workers may be there a moment longer.
        while (many := len(os.listdir("/proc/self/fd"))) != few + 2 * cost and time.monotonic() < deadline:
            list(loader)
    assert many - few == 2 * cost


def test_a_forked_worker_can_be_joined_and_knows_its_parent() -> None:
    """What multiprocessing's pipes were for works without them."""

    class Asking(Dataset[bool]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> bool:
            parent = process.parent_process()
            return parent is not None and parent.is_alive() and parent.pid == os.getppid()

    with stoker.DataLoader(Asking(), num_workers=1, multiprocessing_context="fork") as loader:
        iterator = iter(loader)
        assert next(iterator).item() is True
        [worker] = iterator._workers
        worker.join(0.001)
        assert worker.is_alive()
        worker.kill()
        worker.join(GONE_S)
        assert worker.exitcode == -signal.SIGKILL
    worker.join(GONE_S)
    worker.close()


FEW_DESCRIPTORS = """
    import resource, sys
    import torch
    from stoker import DataLoader

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 1200

        def __getitem__(self, index):
            return torch.full((5000,), float(index))  # too large to be copied out of its slot

    if __name__ == "__main__":
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        method, workers = sys.argv[1], int(sys.argv[2])
        kept = list(DataLoader(Rows(), batch_size=3, num_workers=workers, multiprocessing_context=method))
        print(sum(bool((row == 3 * number + place).all()) for number, batch in enumerate(kept)
                  for place, row in enumerate(batch)))
"""


@pytest.mark.parametrize(("method", "workers"), [("fork", 16), ("forkserver", 16)])
def test_256_descriptors_are_enough(method: str, workers: int, tmp_path: Path) -> None:
    """Rows 9 and 10: also when every batch is kept."""
    assert run(FEW_DESCRIPTORS, method, str(workers), folder=tmp_path) == ["1200"]


PLACES = """
    import os, stat, sys, tempfile
    from multiprocessing import forkserver
    seen = []
    sys.addaudithook(lambda event, args: seen.append(event))
    import torch
    from stoker import DataLoader

    if __name__ == "__main__":
        method, folder = sys.argv[1:]
        tempfile.gettempdir()  # remembered from here on
        if folder:
            os.rmdir(folder)
        rows = torch.utils.data.TensorDataset(torch.arange(20))
        del seen[:]
        loader = DataLoader(rows, batch_size=10, num_workers=1, multiprocessing_context=method)
        print([len(batch[0]) for batch in loader])
        print([event for event in seen if event.startswith("tempfile.") or event in ("socket.bind", "os.mkdir")])
        address = forkserver._forkserver._forkserver_address or ""
        print(address)
        print(oct(stat.S_IMODE(os.stat(os.path.dirname(address)).st_mode)) if address else "")
"""


@pytest.mark.parametrize(
    ("method", "vanished"),
    [("fork", False), ("fork", True), ("spawn", True), ("forkserver", False), ("forkserver", True)],
)
def test_a_bad_tmpdir_does_not_matter(method: str, vanished: bool, tmp_path: Path) -> None:
    """Row 31: fork and spawn use no path at all; the fork server's socket goes where there is room, for us alone."""
    folder = tmp_path / ("gone" if vanished else "x" * 100)
    folder.mkdir()
    lines = run(PLACES, method, str(folder) if vanished else "", folder=tmp_path, TMPDIR=str(folder))
    batches, events, address, mode = lines
    assert batches == "[10, 10]"
    if method == "forkserver":
        assert address.startswith("/")  # a path: no socket that other users could connect to
        assert not address.startswith(str(folder))
        assert mode == "0o700"
        assert not Path(address).parent.exists()  # removed at exit
    else:
        assert events == "[]"
        assert address == ""


@pytest.fixture
def temp_config() -> Iterator[dict[str, Any]]:
    """multiprocessing's note of its temporary directory, put back afterwards."""
    config = process.current_process()._config  # type: ignore[attr-defined]
    before = config.get("tempdir")
    yield config
    config["tempdir"] = before


def test_a_usable_place_is_kept(temp_config: dict[str, Any], tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        temp_config["tempdir"] = place
        launcher._find_place()
        assert temp_config["tempdir"] == place
        os.chmod(place, 0o777)  # others could put a socket of theirs in its stead
        launcher._find_place()
        assert temp_config["tempdir"] != place


def test_no_place_for_the_fork_server_is_named(
    temp_config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 31."""
    temp_config["tempdir"] = None
    monkeypatch.setattr(tempfile, "mkdtemp", refuse(errno.EROFS))
    with pytest.raises(StartRefused, match="Set TMPDIR to such a directory") as caught:
        launcher._find_place()
    assert "/var/tmp" in str(caught.value)
    assert temp_config["tempdir"] is None


DAEMONS = """
    import multiprocessing, os, sys
    import torch
    from stoker import DataLoader

    def load(method):
        assert multiprocessing.current_process().daemon
        rows = torch.utils.data.TensorDataset(torch.arange(20))
        loader = DataLoader(rows, batch_size=10, num_workers=2, multiprocessing_context=method)
        return method, os.getpid() != os.getppid(), [batch[0].sum().item() for batch in loader]

    if __name__ == "__main__":
        outer, *inner = sys.argv[1:]
        if outer == "fork":  # a fork server that the daemon inherits, and cannot wait for
            for batch in DataLoader(torch.arange(2), num_workers=1, multiprocessing_context="forkserver"):
                pass
        with multiprocessing.get_context(outer).Pool(1) as pool:
            for method in inner:
                print(*pool.apply(load, (method,)))
            pool.close()
            pool.join()
"""


@pytest.mark.parametrize("outer", ["fork", "forkserver"])
def test_a_loader_inside_a_pool(outer: str, tmp_path: Path) -> None:
    """Row 46."""
    inner = METHODS if outer == "fork" else ("fork", "forkserver")
    lines = run(DAEMONS, outer, *inner, folder=tmp_path)
    assert lines == [f"{method} True [45, 145]" for method in inner]


KILLED_DAEMON = """
    import multiprocessing, os, sys
    from stoker import DataLoader
    from tests.fault.datasets import Gated

    class Busy(Gated):
        def __getitem__(self, index):
            os.write(1, f"{os.getpid()}\\n".encode())
            return super().__getitem__(index)

    def load(gate, method):
        batches = [[0], [-1]]  # one worker waits in the kernel, the other computes
        next(iter(DataLoader(Busy(gate, 0), batch_sampler=batches, num_workers=2, multiprocessing_context=method)))

    if __name__ == "__main__":
        daemon = multiprocessing.get_context("fork").Process(target=load, args=sys.argv[1:], daemon=True)
        daemon.start()
        print(daemon.pid, flush=True)
        daemon.join()
        print(daemon.exitcode)
"""


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_workers_end_with_a_daemon_that_was_killed(method: str, tmp_path: Path) -> None:
    """Row 46: the ban on daemons' children exists because these would be left. Row 34."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(KILLED_DAEMON))
    with warm.Popen([str(path), str(gate), method], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        daemon = int(parent.stdout.readline())
        watches = [os.pidfd_open(int(parent.stdout.readline())) for _ in range(2)]
        os.kill(daemon, signal.SIGKILL)
        left = sum(not select.select([watch], [], [], GONE_S)[0] for watch in watches)
        for watch in watches:
            os.close(watch)
        assert left == 0
        assert parent.stdout.readline() == f"{-signal.SIGKILL}\n"


def shuffled(method: str) -> list[torch.Tensor]:
    torch.manual_seed(11)
    loader = stoker.DataLoader(Rows(), 3, shuffle=True, num_workers=2, multiprocessing_context=method)
    return list(loader)


@pytest.mark.parametrize(
    ("method", "how"), [("fork", "set"), ("fork", "with"), ("forkserver", "set"), ("forkserver", "with")]
)
def test_another_default_device_changes_nothing(method: str, how: str) -> None:
    """Row 47: order, random numbers and batches are those of the CPU, where workers make them."""
    expected = shuffled(method)
    if how == "with":
        with torch.device("meta"):
            found = shuffled(method)
    else:
        torch.set_default_device("meta")
        try:
            found = shuffled(method)
        finally:
            torch.set_default_device(None)
    assert [batch.device.type for batch in found] == ["cpu"] * 3
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
