"""The public loader on a Ray cluster: the batches are those of ``num_workers=0``, whatever options and whatever dies."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

import stoker
from stoker._tools.top.live import LoaderLive, WorkerLive, live
from stoker._tools.top.processes import scan
from stoker.errors import ClusterError, UnsendableError, WorkerDied, WorkerTimeout
from tests.compat.compare import assert_same, seed_everything
from tests.conformance.datasets import Mixture

pytestmark = pytest.mark.usefixtures("cluster")

ROWS = 190
BATCH = 40
RAY = stoker.Ray(num_cpus=0.5)


def run(epochs: int = 2, **options: Any) -> list[list[Any]]:
    seed_everything(3)
    with stoker.DataLoader(Mixture(ROWS, noise=True), BATCH, shuffle=True, **options) as loader:
        return [list(loader) for _ in range(epochs)]


@pytest.mark.parametrize(
    "options",
    [
        {"executor": stoker.Ray(wait_for_all=True), "split_batches": True},
        {"executor": stoker.Ray(local=1), "persistent_workers": True},
        {"executor": RAY, "persistent_workers": True, "rng": "sample", "prefetch_epochs": True},
    ],
    ids=["split", "beside a local worker", "by sample, next epoch ahead"],
)
def test_batches_equal_those_without_workers(options: dict[str, Any]) -> None:
    expected = run(rng=options.get("rng", "batch"))
    assert_same(expected, run(num_workers=2, **options))


class Stream(IterableDataset[int]):
    """A stream with a state, shared out among the workers."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Any:
        info = get_worker_info()
        assert info is not None
        while self.at < 30:
            self.at += 1
            yield self.at * 100 + info.id
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


@pytest.mark.parametrize("dataset", [Mixture(ROWS, noise=True), Stream()], ids=["map", "stream"])
def test_a_state_goes_from_ray_to_local_workers_and_back(dataset: Any) -> None:
    shuffle = None if isinstance(dataset, Stream) else True

    def loader(executor: Any) -> stoker.DataLoader[Any]:
        return stoker.DataLoader(dataset, 10, shuffle=shuffle, num_workers=2, executor=executor)

    seed_everything(3)
    whole = list(loader("process"))
    seed_everything(3)
    got: list[Any] = []
    state = None
    for executor in (RAY, "process", RAY):
        with loader(executor) as leg:
            if state is not None:
                leg.load_state_dict(state)
            for batch in leg:
                got.append(batch)
                if executor is not RAY or state is None:
                    state = leg.state_dict()
                    if len(got) % 2 == 0:
                        break
            else:
                break
    assert_same(whole, got)


class Faulty(Dataset[int]):
    """What an index does is in the table: kill its worker once or always, hang, raise, print."""

    def __init__(self, folder: Path, **does: int) -> None:
        self.folder = str(folder)
        self.does = {index: what for what, index in does.items()}
        self.scale = 1

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> int:
        what = self.does.get(index)
        mark = os.path.join(self.folder, f"{what}-{index}")
        if what == "kill" or (what == "kill_once" and not os.path.exists(mark)):
            Path(mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "relay_once" and not os.path.exists(mark):
            Path(mark).touch()
            os.kill(int(Path(self.folder, "relay").read_text()), signal.SIGKILL)
            time.sleep(60)
        if what == "hang":
            time.sleep(600)
        if what == "tell":
            logging.getLogger("faulty").warning("index %d in a worker", index)
        return index * self.scale


def numbers(batches: Any) -> list[int]:
    return [int(each) for batch in batches for each in batch]


def test_a_killed_worker_is_replaced_and_a_killing_sample_is_skipped(tmp_path: Path) -> None:
    once = Faulty(tmp_path, kill_once=9)
    with stoker.DataLoader(once, 4, num_workers=2, executor=RAY) as loader:
        assert numbers(loader) == list(range(24))
        assert loader.stats()["worker_deaths"] == 1
    always = Faulty(tmp_path, kill=9)
    with stoker.DataLoader(
        always, 4, num_workers=2, executor=RAY, on_bad_sample="skip", restarts=0
    ) as loader:
        assert numbers(loader) == [each for each in range(24) if each != 9]
    with (
        stoker.DataLoader(always, 4, num_workers=2, executor=RAY, restarts=0) as loader,
        pytest.raises(WorkerDied, match="SIGKILL") as caught,
    ):
        list(loader)
    assert "dataset index 9" in str(caught.value)
    assert "it ran on node" in str(caught.value)


def test_a_lost_actor_is_replaced_and_blamed_on_nobody(tmp_path: Path) -> None:
    def relay_of_this_worker(worker: int) -> None:
        # The relay is the only other process that maps this worker's status page.
        own = Path("/proc/self/maps").read_text().splitlines()
        page = next(line.split()[4] for line in own if "stoker-status" in line)
        for maps in Path("/proc").glob("[0-9]*/maps"):
            try:
                text, name = maps.read_text(), (maps.parent / "cmdline").read_text()
            except OSError:
                continue
            if f" {page} " in text and "ray::" in name:
                (tmp_path / "relay").write_text(maps.parent.name)

    dataset = Faulty(tmp_path, relay_once=9)
    with stoker.DataLoader(
        dataset,
        4,
        num_workers=1,
        executor=RAY,
        restarts=0,
        worker_init_fn=relay_of_this_worker,
        multiprocessing_context="forkserver",  # nothing near stands in for it
        on_bad_sample="skip",
    ) as loader:
        assert numbers(loader) == list(range(24))
        assert loader.stats()["worker_deaths"] == 1


def test_a_timeout_has_the_index_and_the_remote_stack(tmp_path: Path) -> None:
    with (
        stoker.DataLoader(
            Faulty(tmp_path, hang=5), 4, num_workers=1, executor=RAY, timeout=20, split_batches=False
        ) as loader,
        pytest.raises(WorkerTimeout) as caught,
    ):
        list(loader)
    assert "dataset index 5" in str(caught.value)
    assert "in __getitem__" in str(caught.value)


def test_changed_attributes_and_log_records_travel(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset = Faulty(tmp_path, tell=3)
    with stoker.DataLoader(
        dataset, 4, num_workers=2, executor=stoker.Ray(local=1), persistent_workers=True
    ) as loader:
        assert numbers(loader) == list(range(24))
        dataset.scale = 3
        assert numbers(loader) == list(range(0, 72, 3))
    assert [each.getMessage() for each in caplog.records if each.name == "faulty"] == [
        "index 3 in a worker"
    ] * 2


class Wide(Dataset[torch.Tensor]):
    """Rows over shared and over plain memory."""

    def __init__(self) -> None:
        self.plain = torch.arange(1 << 20)
        self.shared = stoker.share([f"name {number}" for number in range(50_000)])

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, str]:  # type: ignore[override]
        return self.plain[index * 1000 : index * 1000 + 50_000], self.shared[index * 700]


def test_large_data_travels_once_and_batches_arrive_writable() -> None:
    expected = list(stoker.DataLoader(Wide(), 16))
    with stoker.DataLoader(Wide(), 16, num_workers=2, executor=RAY, memory_budget="40MB") as loader:
        got = list(loader)
    assert_same(expected, got)
    got[0][0].add_(1)


class Placed(Dataset[tuple[int, int]]):
    """A row says which process made it, and which file holds the shared list there."""

    def __init__(self, file: str) -> None:
        self.shared = stoker.share([f"name {number}" * 20 for number in range(50_000)])
        self.file = file

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[int, int]:
        assert self.shared[index * 700].startswith("name")
        time.sleep(0.02)  # so that both workers have some
        maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
        found = {int(each[4]) for each in maps if len(each) > 5 and self.file in each[5]}
        return os.getpid(), max(found, default=0)


@pytest.mark.parametrize(
    ("file", "options"),
    [("stoker-share", {}), ("stoker-ray-spec", {"multiprocessing_context": "forkserver"})],
    ids=["the trainer's node", "another node"],
)
def test_what_is_shared_is_mapped_from_one_file_by_all_workers_of_a_node(file: str, options: Any) -> None:
    """On the trainer's node it is the trainer's own file; elsewhere it came through the object store."""
    rows: list[tuple[int, int]] = []
    with stoker.DataLoader(
        Placed(file), 4, num_workers=2, executor=RAY, persistent_workers=True, **options
    ) as loader:
        while len({pid for pid, _ in rows}) < 2:  # until both are up, however long an actor takes to start
            rows += [
                pair for pids, files in loader for pair in zip(pids.tolist(), files.tolist(), strict=True)
            ]
    assert len({file for _, file in rows}) == 1
    assert rows[0][1] != 0


def test_a_receipt_is_that_of_a_run_without_workers() -> None:
    def receipt(**options: Any) -> Any:
        seed_everything(3)
        with stoker.DataLoader(Mixture(ROWS, noise=True), BATCH, shuffle=True, **options) as loader:
            list(loader)
            return loader.receipt()

    here, there = receipt(), receipt(num_workers=2, executor=RAY)
    assert there.finished
    assert (there.digest, there.samples_digest, there.batches) == (
        here.digest,
        here.samples_digest,
        here.batches,
    )


class Gated(Dataset[int]):
    """From the fifth row on, each waits until the file is there."""

    def __init__(self, file: Path) -> None:
        self.file = str(file)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        time.sleep(0.01)
        while index >= 4 and not os.path.exists(self.file):
            time.sleep(0.01)
        return index


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_top_shows_one_loader_with_the_index_of_each_actor(tmp_path: Path, method: str) -> None:
    """Actors have pages of their own. On the trainer's machine they are part of its loader, and not loaders without a record."""
    file = tmp_path / "open"
    seen: list[LoaderLive] = []

    def look() -> None:
        """Beside the loop, which waits for the fifth row."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            before = scan()
            time.sleep(0.05)
            told = live(scan(), before)
            seen[:] = [each for each in told if "Relay" in each.command or each.pid == os.getpid()]
            workers = sorted(seen[0].workers, key=_batch) if len(seen) == 1 else []
            if [each.index for each in workers] == [4, 6] and all(each.off is not None for each in workers):
                break
        file.touch()

    looking = threading.Thread(target=look)
    with stoker.DataLoader(
        Gated(file), 2, num_workers=2, executor=RAY, split_batches=False, multiprocessing_context=method
    ) as loader:
        batches = iter(loader)
        looking.start()
        assert numbers(batches) == list(range(8))
    looking.join()
    [ours] = seen
    assert (ours.recorded, ours.executor, ours.num_workers) == (True, "ray", 2)
    assert {each.index: each.phase for each in ours.workers} == {4: "fetch", 6: "fetch"}
    assert all(each.off is not None for each in ours.workers)


def _batch(worker: WorkerLive) -> int:
    return -1 if worker.batch is None else worker.batch


def test_what_cannot_be_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def first(dataset: Any = None, workers: int = 1, **options: Any) -> Any:
        with stoker.DataLoader(
            dataset or Faulty(tmp_path), 4, num_workers=workers, executor=stoker.Ray(**options)
        ) as loader:
            return next(iter(loader))

    with pytest.raises(ClusterError, match="no worker has started") as caught:
        first(resources={"unobtainable": 1}, wait_s=0.5)
    assert caught.value.code == "STK323"
    with pytest.raises(ClusterError, match="free CPUs") as caught:  # there is room for one of two
        first(workers=2, num_cpus=5, wait_for_all=True, wait_s=4)
    assert caught.value.code == "STK323"
    ends = Pipe()
    bound: Any = Faulty(tmp_path)
    bound.end = ends[0]
    with pytest.raises(UnsendableError, match="this machine only") as refused:
        first(bound)
    assert refused.value.code == "STK324"
    for end in ends:
        end.close()
    with pytest.raises(ClusterError, match="runtime_env") as caught:
        first(runtime_env={"working_dir": "/nonexistent"})
    assert caught.value.code == "STK327"
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClusterError, match=r"pip install 'stoker\[ray\]'") as caught:
        first()
    assert caught.value.code == "STK321"


def test_an_environment_that_a_node_cannot_make_is_one_error(tmp_path: Path) -> None:
    """It fails on the node, after Ray has taken the request; a worker of this node does not hide it."""
    executor = stoker.Ray(num_cpus=0.5, runtime_env={"py_executable": "/nonexistent/python"}, wait_s=20)
    with (
        stoker.DataLoader(Faulty(tmp_path), 4, num_workers=1, executor=executor) as loader,
        pytest.raises(ClusterError) as caught,
    ):
        next(iter(loader))
    assert caught.value.code == "STK327"
