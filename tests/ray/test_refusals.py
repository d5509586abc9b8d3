"""What Ray refuses, in our words and with a code. Ray's modules are doubles: no cluster."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

import stoker
from stoker._runtime.executors.ray import cluster, dataset_objects
from stoker._runtime.executors.ray.api import RayApi
from stoker._runtime.executors.ray.relay import Started
from stoker._runtime.executors.ray.remotes import Remote
from stoker.errors import ClusterError
from tests.frameworks.packages import needs
from tests.frameworks.processes import in_fork

needs("ray")


class Errors:
    """The names that ``ray.exceptions`` has, of which ``explain`` asks."""

    RuntimeEnvSetupError = type("RuntimeEnvSetupError", (Exception,), {})
    ObjectStoreFullError = type("ObjectStoreFullError", (Exception,), {})
    OutOfDiskError = type("OutOfDiskError", (Exception,), {})
    ActorDiedError = type("ActorDiedError", (Exception,), {})
    ActorUnavailableError = type("ActorUnavailableError", (Exception,), {})
    NodeDiedError = type("NodeDiedError", (Exception,), {})


def remote(**changed: Any) -> Remote:
    gone: Any = None
    return Remote(3, None, gone, host="b", **changed)


@pytest.fixture
def api() -> RayApi:
    actor = SimpleNamespace(options=lambda **_: None)
    double = SimpleNamespace(
        remote=lambda **_: lambda _: actor,
        exceptions=Errors,
        available_resources=lambda: {"CPU": 2.0},
    )
    return RayApi(double, stoker.Ray(num_cpus=4), "pool")


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (Errors.RuntimeEnvSetupError("pip failed"), "STK327", "runtime_env"),
        (Errors.ObjectStoreFullError("full"), "STK325", "on node b has no room for a batch"),
        (Errors.OutOfDiskError("disk"), "STK325", "--object-store-memory"),
        (
            ImportError("ray::Relay\nModuleNotFoundError: No module named 'torch'"),
            "STK322",
            "No module named 'torch'",
        ),
    ],
    ids=["environment", "store", "disk", "package"],
)
def test_some_losses_end_the_loader(api: RayApi, error: Exception, code: str, words: str) -> None:
    loss = api.explain(remote(up=code == "STK325"), error)
    assert isinstance(loss.error, ClusterError)
    assert loss.error.code == code
    assert words in str(loss.error)


def test_the_loss_of_an_actor_is_its_hosts_and_ends_nothing(api: RayApi) -> None:
    loss = api.explain(remote(up=True), Errors.ActorDiedError("node is gone"))
    assert loss.error is None
    assert loss.by_host
    assert "worker 3 on node b exited unexpectedly" in loss.reason
    assert not api.explain(remote(up=True), RuntimeError("a bug")).by_host


def test_too_few_cpus_are_counted(api: RayApi) -> None:
    told = api.few_cpus(waiting=3, workers=8)
    assert "5 of 8 remote workers have started" in told
    assert "2 free CPUs left, and each worker asks for 4" in told
    error = api.no_worker(60.0)
    assert error.code == "STK323"
    assert "within 60 s" in str(error)
    error = api.missing_workers(5, 8, 60.0)
    assert error.code == "STK323"
    assert (
        "5 of 8 remote workers have started on the Ray cluster within 60 s: it has 2 free CPUs left"
        in str(error)
    )
    assert "wait_for_all=False" in str(error)
    assert str(api.missing_workers(0, 8, 60.0)) == str(api.no_worker(60.0))


def test_an_environment_in_which_nothing_starts_is_named_before_cpus() -> None:
    double = SimpleNamespace(
        remote=lambda **_: lambda _: SimpleNamespace(options=lambda **_: None),
        available_resources=lambda: {"CPU": 2.0},
    )
    executor = stoker.Ray(runtime_env={"py_executable": "/nonexistent"})
    error = RayApi(double, executor, "pool").no_worker(20.0)
    assert error.code == "STK327"
    assert "the runtime_env" in str(error)
    assert "2 free CPUs" in str(error)


def test_another_version_of_stoker_is_refused(api: RayApi) -> None:
    assert api.unfit(Started(1, "n", "b", stoker.__version__)) is None
    refusal = api.unfit(Started(1, "n", "b", "0.0.1"))
    assert refusal is not None
    assert refusal.code == "STK322"


def test_a_cluster_of_other_versions_or_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(text: str) -> Any:
        def init(**_: Any) -> None:
            raise RuntimeError(text)

        return SimpleNamespace(is_initialized=lambda: False, init=init)

    monkeypatch.setitem(sys.modules, "ray", refusing("Version mismatch: Python 3.9"))
    with pytest.raises(ClusterError, match="another version") as caught:
        cluster.connect(stoker.Ray(address="10.0.0.1:6379"))
    assert caught.value.code == "STK322"
    monkeypatch.setitem(sys.modules, "ray", refusing("timed out"))
    with pytest.raises(ClusterError, match="no Ray cluster answers"):
        cluster.connect(stoker.Ray(address="10.0.0.1:6379"))


def test_a_connection_that_was_closed_is_not_opened_by_a_call() -> None:
    """Any call of Ray's connects, and starts a cluster if there is none."""
    killed: list[Any] = []
    double: Any = SimpleNamespace(
        remote=lambda **_: lambda _: SimpleNamespace(options=lambda **_: None),
        is_initialized=lambda: True,
        kill=lambda actor, **_: killed.append(actor),
        _private=SimpleNamespace(worker=SimpleNamespace(global_worker=SimpleNamespace(core_worker=object()))),
    )
    api = RayApi(double, stoker.Ray(), "pool")
    assert api.is_connected()
    api.kill("one")
    double._private.worker.global_worker.core_worker = object()  # ray.shutdown(), then ray.init()
    assert not api.is_connected()
    api.kill("two")
    assert killed == ["one"]


@pytest.mark.usefixtures("cluster")
def test_a_child_that_was_forked_after_the_connection_is_told_so() -> None:
    """A call of Ray's would wait for ever there."""

    def first() -> Any:
        dataset: Any = range(4)
        with stoker.DataLoader(dataset, 2, num_workers=1, executor="ray") as loader:
            with pytest.raises(ClusterError, match="forked from one that is connected") as caught:
                next(iter(loader))
            return caught.value.code

    assert in_fork(first) == "STK321"
    assert not cluster._was_forked(needs("ray"))


def test_a_dataset_for_which_the_object_store_has_no_room(tmp_path: Any) -> None:
    def put(_: Any) -> None:
        raise Errors.ObjectStoreFullError

    path = tmp_path / "packed"
    path.write_bytes(bytes(1 << 20))
    with open(path, "rb") as file, pytest.raises(ClusterError, match="the dataset takes 1 MiB") as caught:
        dataset_objects._put_file(SimpleNamespace(put=put, exceptions=Errors), file.fileno(), 1 << 20)
    assert caught.value.code == "STK325"
