"""The host of the trainer's own node, forked from the trainer: what its workers have from there, and what they must not have."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import psutil
import pytest
from torch.utils.data import Dataset

import stoker
from stoker._runtime.executors.ray import near_host, node_host
from tests.frameworks.packages import needs

needs("ray")

RAY = stoker.Ray(num_cpus=0.5)


def sockets() -> set[str]:
    """The sockets of this process, as the kernel numbers them."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:  # the one that listed the directory
            continue
    return {each for each in found if each.startswith("socket:")}


class Where(Dataset[Any]):
    """A sample says in which process and surroundings it was made."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return {
            "index": index,
            "above": os.getppid(),
            "folder": os.getcwd(),
            "job": os.environ.get("RAY_JOB_ID", ""),
            "sockets": sorted(sockets()),
        }


class Threaded(Where):
    """Unpacking it starts a thread, so no worker may be forked from a process that did."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.stop = threading.Event()
        threading.Thread(target=self.stop.wait, daemon=True).start()


class HostKiller(Where):
    """One sample ends its worker and the host above it."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __getitem__(self, index: int) -> Any:
        if index == 5 and not os.listdir(self.folder):
            Path(self.folder, "done").touch()
            os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def rows(loader: Any) -> list[dict[str, Any]]:
    """The samples of an epoch, in order."""
    return [sample for batch in loader for sample in batch]


def options(**more: Any) -> dict[str, Any]:
    return {"batch_size": 2, "num_workers": 2, "executor": RAY, "collate_fn": list, **more}


@pytest.mark.usefixtures("cluster")
def test_workers_are_forked_from_a_child_of_the_trainer_without_its_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        near_host, "has_free_cpu", lambda *_: False
    )  # nothing stands in, with this process's folder
    children = {each.pid for each in psutil.Process().children()}
    with stoker.DataLoader(Where(), **options()) as loader:
        found = rows(loader)
        [above] = {each["above"] for each in found}
        assert psutil.Process(above).ppid() == os.getpid()
    assert [each["index"] for each in found] == list(range(12))
    assert {each["folder"] for each in found} != {str(tmp_path)}  # the actor's, as on any other node
    assert all(each["job"] for each in found)
    assert all(not sockets() & set(each["sockets"]) for each in found)
    assert {each.pid for each in psutil.Process().children()} == children


@pytest.mark.usefixtures("cluster")
def test_a_dataset_that_no_fork_may_share_is_unpacked_by_each_worker() -> None:
    with stoker.DataLoader(Threaded(), **options()) as loader:
        found = rows(loader)
    assert [each["index"] for each in found] == list(range(12))


@pytest.mark.usefixtures("cluster")
def test_relays_start_another_host_when_it_is_gone(tmp_path: Path) -> None:
    with stoker.DataLoader(HostKiller(tmp_path), **options(num_workers=1)) as loader:
        found = rows(loader)
        assert loader.stats()["worker_deaths"] == 1
    assert [each["index"] for each in found] == list(range(12))
    assert len({each["above"] for each in found}) == 2


@pytest.mark.usefixtures("cluster")
def test_no_host_is_forked_where_actors_may_be_in_another_environment() -> None:
    executor = stoker.Ray(num_cpus=0.5, runtime_env={"env_vars": {"STK_ONE": "1"}})
    with stoker.DataLoader(Where(), **options(executor=executor)) as loader:
        assert {psutil.Process(each["above"]).ppid() for each in rows(loader)} != {os.getpid()}


def double(**changed: Any) -> Any:
    """As much of Ray as is asked."""
    node = {"NodeID": "n", "Alive": True, "Resources": {"CPU": 2.0}, **changed}
    here = SimpleNamespace(runtime_env=changed.get("env", {}), get_node_id=lambda: "n")
    return SimpleNamespace(get_runtime_context=lambda: here, nodes=lambda: [node])


@pytest.mark.parametrize(
    ("changed", "executor", "method", "serves"),
    [
        ({}, RAY, "fork", True),
        ({}, RAY, "forkserver", False),
        ({"Resources": {}}, RAY, "fork", False),
        ({"Alive": False}, RAY, "fork", False),
        ({"env": {"pip": ["x"]}}, RAY, "fork", False),
        ({}, stoker.Ray(runtime_env={"pip": ["x"]}), "fork", False),
        ({}, stoker.Ray(num_cpus=4), "fork", False),
        ({"NodeID": "another"}, RAY, "fork", False),
    ],
    ids=["here", "no fork", "no CPUs", "dead", "job's environment", "loader's", "too few CPUs", "no node of ours"],
)  # fmt: skip
def test_where_there_is_one(changed: Any, executor: stoker.Ray, method: str, serves: bool) -> None:
    context = SimpleNamespace(get_start_method=lambda: method)
    assert near_host._serves(double(**changed), executor, context) == serves


def test_datasets_that_may_call_ray_are_known_by_their_modules() -> None:
    assert near_host._calls_ray(frozenset({"ray.data"}))
    assert not near_host._calls_ray(frozenset({"torch", "__main__", "not_imported_here"}))


def test_the_module_of_a_dataset_that_has_imported_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("reads_from_ray")
    monkeypatch.setitem(sys.modules, "reads_from_ray", module)
    assert not near_host._calls_ray(frozenset({"reads_from_ray"}))
    module.ray = needs("ray")
    assert near_host._calls_ray(frozenset({"reads_from_ray"}))


def test_names_of_hosts_differ_and_are_short_enough_for_a_socket() -> None:
    names = [*node_host.addresses("a" * 32, "n" * 56), *node_host.addresses("b" * 32, "n" * 56)]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 107
