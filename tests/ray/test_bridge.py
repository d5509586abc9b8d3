"""The bridge against a double of Ray: order, second attempts, losses and their number, many actors. No cluster."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import stoker
from stoker._runtime.autoscale.types import AutoscaleAction, AutoscaleBounds, Observation, ObservationPeriod
from stoker._runtime.executors.ray import cluster, dataset_objects, near_host, watches
from stoker._runtime.executors.ray import executor as ray_executor
from stoker._runtime.executors.ray.relay import Started
from stoker.arguments import Auto
from stoker.errors import ClusterError
from tests.ray.fake_ray import FakeActor, FakeApi


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[FakeApi]:
    """A loader with ``executor="ray"`` gets this double."""
    api = FakeApi(**getattr(request, "param", {}))
    monkeypatch.setattr(cluster, "connect", lambda options: None)
    monkeypatch.setattr(cluster, "free_cpus", lambda ray: 1e9)
    monkeypatch.setattr(cluster, "head_address", lambda ray: None)
    monkeypatch.setattr(dataset_objects, "put", lambda ray, spec: [])
    monkeypatch.setattr(ray_executor, "RayApi", lambda *_: api)
    yield api
    api.stop()


def numbers(count: int) -> Any:
    """A dataset of so many numbers."""
    return range(count)


def until(condition: Any) -> None:
    """Wait for the bridge's thread; the test's timeout ends it."""
    while not condition():
        os.sched_yield()


@pytest.mark.parametrize("fake", [{"prompt": True, "hold": 200}], indirect=True)
def test_256_actors_give_every_batch_once_and_in_order(fake: FakeApi) -> None:
    with stoker.DataLoader(numbers(3000), 3, num_workers=256, executor="ray") as loader:
        got = [batch.tolist() for batch in loader]
    assert got == [[at, at + 1, at + 2] for at in range(0, 3000, 3)]
    assert set(fake.actors) == set(range(256))
    assert set(fake.killed) == set(range(256))


def test_a_late_task_is_tried_by_an_idle_actor_and_the_first_result_counts(
    fake: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "LATE_NS", 0)
    with stoker.DataLoader(numbers(4), 2, num_workers=3, executor="ray", split_batches=False) as loader:
        batches = iter(loader)
        until(lambda: len(fake.calls) == 3)  # two tasks, and the first of them again
        tasks = [each[2].seq for each in fake.calls]
        assert sorted(tasks) == [0, 0, 1]
        assert len({each[0].worker for each in fake.calls}) == 3
        again = max(place for place, seq in enumerate(tasks) if seq == 0)
        fake.finish(again)
        assert next(batches).tolist() == [0, 1]
        fake.finish(tasks.index(0))  # the slow one, at last: nobody needs it
        fake.finish(0)
        assert [batch.tolist() for batch in batches] == [[2, 3]]


@pytest.mark.parametrize("fake", [{"prompt": True, "losses": 3}], indirect=True)
def test_a_lost_actor_is_counted_once_and_its_task_is_made_elsewhere(fake: FakeApi) -> None:
    options: dict[str, Any] = {
        "restarts": 0,
        "on_bad_sample": "skip",
        "split_batches": False,
    }  # a killer would be skipped
    with stoker.DataLoader(numbers(8), 2, num_workers=2, executor="ray", **options) as loader:
        assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]
        assert loader.stats()["worker_deaths"] == 3


@pytest.fixture
def near(fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """Something stands in for the first actor, and no actor starts before the test says so."""
    fake.starts = False
    monkeypatch.setattr(near_host, "has_free_cpu", lambda *_: True)
    monkeypatch.setattr(near_host, "start", lambda *_: SimpleNamespace(close=lambda: None))
    return fake


def started(worker: int) -> Started:
    return Started(1000 + worker, "node", "host", "")


def test_what_stands_in_works_until_the_actor_has_started_and_hands_over_between_two_tasks(
    near: FakeApi,
) -> None:
    with stoker.DataLoader(numbers(8), 2, num_workers=1, executor="ray", split_batches=False) as loader:
        batches = iter(loader)
        until(lambda: near.calls)
        assert near.finish() is near.nears[0]
        assert next(batches).tolist() == [0, 1]
        until(lambda: near.calls)
        near.actors[0].started.done.set_result(started(0))
        assert not near.near_ended.wait(0.05)  # it has a task
        assert near.finish() is near.nears[0]
        for expected in ([2, 3], [4, 5]):
            assert next(batches).tolist() == expected
            until(lambda: near.calls)
            assert near.near_ended.is_set()
            assert near.finish() is near.actors[0]
        assert [batch.tolist() for batch in batches] == [[6, 7]]
        assert loader.stats()["worker_deaths"] == 0
    assert near.killed == [0]


def test_without_what_stands_in_the_actor_works(near: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(worker: int) -> FakeActor:
        actor = FakeActor(near, worker)
        actor.started.done.set_exception(OSError("no descriptor is left"))
        near.nears.append(actor)
        return actor

    monkeypatch.setattr(near, "near", broken)
    with stoker.DataLoader(numbers(2), 2, num_workers=1, executor="ray") as loader:
        batches = iter(loader)
        assert near.near_ended.wait(60)
        near.actors[0].started.done.set_result(started(0))
        until(lambda: near.calls)
        assert near.finish() is near.actors[0]
        assert [batch.tolist() for batch in batches] == [[0, 1]]
        assert loader.stats()["worker_deaths"] == 0


def test_an_actor_that_fails_to_start_ends_what_stands_in_and_another_takes_its_place(near: FakeApi) -> None:
    with stoker.DataLoader(numbers(4), 2, num_workers=1, executor="ray", split_batches=False) as loader:
        batches = iter(loader)
        until(lambda: near.calls)
        near.starts = True
        near.actors[0].started.done.set_exception(ConnectionError("its node is gone"))
        assert near.near_ended.wait(60)
        near.lose("ended")  # the task that it had
        made: list[FakeActor] = []

        def finish_both() -> None:
            for _ in range(2):
                until(lambda: near.calls)
                made.append(near.finish())

        helper = threading.Thread(target=finish_both)
        helper.start()
        assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3]]
        helper.join()
        assert made == [near.actors[0]] * 2
        assert loader.stats()["worker_deaths"] == 1


def test_what_ray_refuses_of_every_actor_ends_the_loader(
    fake: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def refuses(worker: int) -> FakeActor:
        asked.append(worker)
        raise TypeError("scheduling_strategy is no strategy: FOO")

    monkeypatch.setattr(fake, "actor", refuses)
    with (
        stoker.DataLoader(numbers(8), 2, num_workers=1, executor=stoker.Ray(strategy="FOO")) as loader,
        pytest.raises(ClusterError, match=r"strategy of stoker\.Ray.*FOO") as refused,
    ):
        next(iter(loader))
    assert refused.value.code == "STK327"
    assert asked == [0]


@pytest.mark.parametrize("raised", [False, True], ids=["noticed", "in a call"])
def test_a_loader_whose_connection_is_closed_ends_with_one_error(
    fake: FakeApi, monkeypatch: pytest.MonkeyPatch, raised: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with stoker.DataLoader(numbers(8), 2, num_workers=1, executor="ray", split_batches=False) as loader:
        batches = iter(loader)
        until(lambda: fake.calls)
        asked = len(fake.actors)

        def fails(*_: Any) -> None:
            fake.connected = False
            raise ValueError("owner is unknown")

        if raised:
            monkeypatch.setattr(fake, "make", fails)
            fake.finish()
        else:
            fake.connected = False
            fake.lose("the core worker was shut down")
        with pytest.raises(ClusterError, match=r"ray\.shutdown\(\)"):
            list(batches)
    assert len(fake.actors) == asked  # nothing is asked of Ray any more: it would start a cluster
    assert "the thread that talks to Ray ended" not in caplog.text


@pytest.mark.parametrize("fake", [{"prompt": True}], indirect=True)
def test_the_first_batch_waits_for_all_workers_if_asked(
    fake: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, came = threading.Event(), threading.Event()
    premature: list[bool] = []

    def actor(worker: int) -> FakeActor:
        fake.starts = worker == 0
        made = fake.actors[worker] = FakeActor(fake, worker)
        return made

    def start_the_other() -> None:
        begun.wait()
        until(lambda: 1 in fake.actors)
        premature.append(came.wait(0.3))
        fake.actors[1].started.done.set_result(started(1))

    monkeypatch.setattr(fake, "actor", actor)
    helper = threading.Thread(target=start_the_other)
    helper.start()
    executor = stoker.Ray(wait_for_all=True)
    with stoker.DataLoader(numbers(8), 2, num_workers=2, executor=executor) as loader:
        begun.set()
        batches = iter(loader)
        first = next(batches)
        came.set()
        assert [first.tolist(), *(batch.tolist() for batch in batches)] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    helper.join()
    assert premature == [False]

    executor = stoker.Ray(wait_for_all=True, wait_s=0.1)
    with (
        stoker.DataLoader(numbers(8), 2, num_workers=2, executor=executor) as loader,
        pytest.raises(ClusterError, match="1 of 2"),
    ):
        next(iter(loader))
    assert set(fake.killed) == {0, 1}


@pytest.mark.parametrize("fake", [{"prompt": True}], indirect=True)
def test_auto_asks_the_autoscaler_for_room_and_gives_it_back(
    fake: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    actions = [AutoscaleAction("grow", count, 2 * count, f"to have {count}") for count in (5, 3)]

    class Scripted:
        """Orders five workers, then three."""

        period = ObservationPeriod(0.0, 3)

        def __init__(self, bounds: AutoscaleBounds) -> None:
            self.bounds = bounds
            assert bounds.most > 32  # not bounded by this machine's CPUs

        def decide(self, window: Observation) -> AutoscaleAction | None:
            return actions.pop(0) if actions else None

    monkeypatch.setattr("stoker._runtime.autoscale.controller.AutoscalePolicy", Scripted)
    loader: Any = stoker.DataLoader(
        numbers(600), 2, num_workers="auto", executor="ray", persistent_workers=True
    )
    loader.num_workers = Auto(2)
    with loader:
        while actions or 3 not in fake.room:
            assert [batch.tolist() for batch in loader] == [[at, at + 1] for at in range(0, 600, 2)]
    assert max(fake.room) == 5
    assert fake.room[-1] == 0


@pytest.mark.parametrize("fake", [{"prompt": True}], indirect=True)
def test_the_way_of_a_batch_is_a_stage_of_the_record(fake: FakeApi) -> None:
    with stoker.DataLoader(numbers(600), 2, num_workers=2, executor="ray") as loader:
        assert len(list(loader)) == 300
        [record] = loader.stats()["record"]["loaders"]
    stages = {each["stage"]: each for each in record["blame"]}
    assert "network" in stages
    assert stages["network"]["cause"] == "io"
    assert record["executor"] == "ray"


@pytest.mark.parametrize("chosen", [None, "7"])
def test_a_cluster_that_is_started_here_frees_objects_at_once_unless_the_user_decides(
    monkeypatch: pytest.MonkeyPatch, chosen: str | None
) -> None:
    name = cluster.FREE_AT_ONCE[0]
    monkeypatch.delenv(name, raising=False)
    if chosen is not None:
        monkeypatch.setenv(name, chosen)
    seen: list[str | None] = []
    double = SimpleNamespace(is_initialized=lambda: False, init=lambda **_: seen.append(os.environ.get(name)))
    monkeypatch.setitem(sys.modules, "ray", double)
    assert cluster.connect(stoker.Ray()) is double
    assert seen == [chosen or "1"]
    assert os.environ.get(name) == chosen
