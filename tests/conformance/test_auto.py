"""A loader that chooses its workers itself, flown by a policy that follows a script: nothing here depends on time."""

from __future__ import annotations

import logging
import multiprocessing
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from torch.utils.data import IterableDataset, get_worker_info

import stoker
from stoker._record import journal
from stoker._runtime.autoscale.ranks.rank_consensus import AgreedWorkers
from stoker._runtime.autoscale.types import AutoscaleAction, AutoscaleBounds, Observation, ObservationPeriod
from stoker._runtime.executors.process.start_method import HAZARDS
from stoker.arguments import Auto
from stoker.cli.main import main
from tests.compat.compare import assert_same, seed_everything
from tests.conformance.datasets import Mixture

ROWS = 250
BATCH = 5


class Scripted:
    """Orders what its script says, one line with every window, which is a few steps."""

    script: tuple[AutoscaleAction, ...] = ()
    seen: list[Observation]

    def __init__(self, bounds: AutoscaleBounds) -> None:
        self.bounds = bounds
        self.period = ObservationPeriod(0.0, 3)
        self._left = list(self.script)
        type(self).seen = []

    def decide(self, window: Observation) -> AutoscaleAction | None:
        self.seen.append(window)
        return self._left.pop(0) if self._left else None


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let loaders be flown by these counts of workers, one after the other; 0 stands for an order to hold."""

    def fly(*counts: int) -> type[Scripted]:
        actions = [
            AutoscaleAction("grow", count, 2 * count, f"to have {count}")
            if count
            else AutoscaleAction("hold", 0, 0, "no reason")
            for count in counts
        ]
        monkeypatch.setattr(Scripted, "script", tuple(actions))
        monkeypatch.setattr("stoker._runtime.autoscale.controller.AutoscalePolicy", Scripted)
        return Scripted

    return fly


def auto(dataset: Any, workers: int = 2, **options: Any) -> Any:
    """A loader that begins with so many, whatever this machine has."""
    loader: Any = stoker.DataLoader(dataset, BATCH, num_workers="auto", **options)
    loader.num_workers = Auto(workers)
    return loader


@pytest.mark.parametrize(
    "options",
    [
        {"persistent_workers": True},
        {"record": False, "persistent_workers": True},
        {"executor": "thread", "persistent_workers": True},
        {"persistent_workers": True, "prefetch_epochs": True, "prefetch_factor": 3},
    ],
    ids=["persistent", "no record", "threads", "prefetched epochs"],
)
def test_batches_are_those_without_workers(options: dict[str, Any], scripted: Any) -> None:
    policy = scripted(4, 0, 1, 3, 2, 4, 1)
    noise = options.get("executor") != "thread"
    seed_everything(3)
    expected = list(stoker.DataLoader(Mixture(ROWS, noise=noise), BATCH, shuffle=True))
    seed_everything(3)
    with auto(Mixture(ROWS, noise=noise), shuffle=True, **options) as loader:
        assert_same(expected, list(loader))
        while (
            len((told := loader.stats()["tuning"])["actions"]) < 5
        ):  # workers take their time to come and go
            list(loader)
        assert [each["workers"][1] for each in told["actions"]][:5] == [4, 1, 3, 2, 4]
        assert told["workers"] == loader.num_workers == told["actions"][-1]["workers"][1]
        assert type(loader.num_workers) is Auto
        assert (told["unplugged"], told["held"]) == (None, None)
        assert loader.stats()["worker_deaths"] == 0
        assert (loader.stats()["record"] is None) == (options.get("record") is False)
    window = policy.seen[0]
    assert (window.workers, window.batch_ns != (), window.rows) == (2, True, BATCH)
    if "prefetch_factor" in options:
        assert policy.seen[0].window == 6
        assert all(each["window"][1] % 3 == 0 for each in told["actions"])


def test_every_change_is_told(scripted: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "stoker")
    scripted(3, 0)
    path = tmp_path / "run.jsonl"
    with auto(Mixture(ROWS, noise=False), name="train", record=path, persistent_workers=True) as loader:
        while not loader.stats()["tuning"]["held"]:
            list(loader)
        record = loader.stats()["record"]["loaders"][0]
        events = {each["kind"]: each["reason"] for each in record["events"]}
        assert events["tuning"] == "2 -> 3 workers (grow): to have 3"
        assert events["held"] == "the number of workers stays: no reason"
        assert record["options"]["num_workers"]["value"] == 3
        assert loader.stats()["tuning"]["held"] == "no reason"
        assert len({worker["pid"] for worker in record["workers"]}) == 3
        assert loader._recorder.shown.latest["workers"] in (2, 3)  # the page is written once a second
    told = [each.getMessage() for each in caplog.records]
    assert f"train: {events['tuning']}" in told
    del loader
    shown = CliRunner().invoke(main, ["report", str(path)])
    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith("Verdict")
    assert "3 workers:" in shown.output  # how busy they were is not said of a number that changed
    kept = journal.read(path).loaders[0]
    assert kept.options["num_workers"].value == 3


class Shared(IterableDataset[int]):
    """A stream that is shared out among the workers."""

    def __iter__(self) -> Any:
        info = get_worker_info()
        place, step = (info.id, info.num_workers) if info is not None else (0, 1)
        return iter(range(place, 120, step))


@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}], ids=["each epoch", "persistent"])
def test_streams_change_at_the_epochs_edge(options: dict[str, Any], scripted: Any) -> None:
    scripted(3)
    with auto(Shared(), **options) as loader:
        for epoch in range(3):
            workers = set()
            got = []
            for batch in loader:
                got += batch.tolist()
                workers.add(int(loader.num_workers))
            assert sorted(got) == list(range(120))
            assert workers == ({2} if epoch == 0 else {3})
        [action] = loader.stats()["tuning"]["actions"]
        assert action["workers"] == [2, 3]


def test_a_state_of_streams_settles_how_many(scripted: Any) -> None:
    scripted()
    first = stoker.DataLoader(Shared(), BATCH, num_workers=3)
    iterator = iter(first)
    begun = [next(iterator) for _ in range(4)]
    state = first.state_dict()
    del iterator
    with auto(Shared()) as loader:
        loader.load_state_dict(state)
        assert (loader.num_workers, type(loader.num_workers)) == (3, Auto)
        rest = list(loader)
    assert sorted(int(each) for batch in begun + rest for each in batch) == list(range(120))


def test_none_become_some_at_the_epochs_edge(scripted: Any) -> None:
    scripted(2)
    seed_everything(3)
    expected = [list(stoker.DataLoader(Mixture(60, noise=True), BATCH)) for _ in range(2)]
    seed_everything(3)
    with auto(Mixture(60, noise=True), 0, persistent_workers=True) as loader:
        first = list(loader)
        assert loader.num_workers == 0
        assert loader.stats()["tuning"]["next_epoch"] == 2
        second = list(loader)
        assert loader.num_workers == 2
        assert len(loader._iterator._workers) == 2
    assert_same(expected, [first, second])


def test_a_controller_that_fails_is_unplugged(
    scripted: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scripted()
    monkeypatch.setattr(Scripted, "decide", partial(int, "no number"))
    with auto(Mixture(100, noise=False)) as loader:
        assert len(list(loader)) == 20
        assert len(list(loader)) == 20
        told = loader.stats()["tuning"]
    assert "Error" in told["unplugged"]
    assert loader.num_workers == 2
    assert sum("is not tuned any more" in each.getMessage() for each in caplog.records) == 1


def test_two_iterators_are_not_flown_at_once(scripted: Any) -> None:
    scripted(3)
    with auto(Mixture(100, noise=False)) as loader:
        pairs = list(zip(loader, loader, strict=True))
    assert [first["label"].tolist() for first, _ in pairs] == [
        second["label"].tolist() for _, second in pairs
    ]


def test_it_does_not_keep_the_loader(scripted: Any) -> None:
    scripted(3, 1)
    loader = auto(Mixture(ROWS, noise=False), persistent_workers=True)
    list(loader)
    gone = weakref.ref(loader)
    del loader
    assert gone() is None  # without a garbage collection


class ConsensusDouble:
    """A rank among others whose leader is it or not, and which hears of this target."""

    def __init__(self, *, leads: bool, target: AgreedWorkers | None = None) -> None:
        self.leads = leads
        self.published: list[int] = []
        self.reports = 0
        self._target = target

    def report(self, window: Observation) -> None:
        self.reports += 1

    def combined(self, window: Observation) -> Observation:
        return window

    def publish(self, workers: int, window: int = 0, *, split: bool = False) -> None:
        self.published.append(workers)
        self._target = AgreedWorkers(len(self.published), workers, window, split)

    def target(self) -> AgreedWorkers | None:
        return self._target

    def close(self) -> None:
        pass


@pytest.mark.parametrize("leads", [True, False])
def test_local_ranks_have_what_the_leading_one_chose(
    leads: bool, scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = scripted(3)
    seat = ConsensusDouble(leads=leads, target=None if leads else AgreedWorkers(7, 4))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr("stoker._runtime.autoscale.controller._join_ranks", lambda loader: seat)
    with auto(Mixture(ROWS, noise=False), persistent_workers=True) as loader:
        while not loader.stats()["tuning"]["actions"]:
            list(loader)
        list(loader)
        [action] = loader.stats()["tuning"]["actions"]
        assert action["kind"] == ("grow" if leads else "follow")
        assert action["workers"] == ([2, 3] if leads else [2, 4])
        assert seat.published == ([3] if leads else [])
        assert seat.reports > 0
        assert bool(policy.seen) == leads


def test_no_worker_is_forked_beside_threads_that_do_not_survive_it(
    scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(4)
    monkeypatch.setattr("torch.multiprocessing.get_context", lambda *_: multiprocessing.get_context("fork"))
    with auto(Mixture(ROWS, noise=False), persistent_workers=True) as loader:
        iterator = iter(loader)
        monkeypatch.setattr(
            "stoker._runtime.executors.process.start_method.live_hazards", lambda: HAZARDS[:1]
        )
        list(iterator)
        told = loader.stats()["tuning"]
        assert told["actions"] == []
        assert "threads of polars" in told["held"]
        assert loader.num_workers == 2
        del iterator


def test_short_epochs_are_looked_at_together(scripted: Any) -> None:
    """Four batches each, of which the first two are left out: one epoch is not enough for a window, two are."""
    policy = scripted()
    with auto(Mixture(20, noise=False), persistent_workers=True) as loader:
        list(loader)
        assert policy.seen == []
        for _ in range(3):
            list(loader)
        assert [each.steps for each in policy.seen[:1]] == [3]
        assert policy.seen[0].workers == 2


def test_a_number_that_is_set_later_counts(scripted: Any) -> None:
    scripted(4, 4, 4)
    dataset: Any = Mixture(100, noise=False)
    loader: Any = stoker.DataLoader(dataset, BATCH, persistent_workers=False)
    assert not loader.prefetch_factor
    loader.num_workers = "auto"
    assert loader.num_workers > 0
    assert int(loader.prefetch_factor or 0) == 2
    assert len(list(loader)) == 20
    loader.num_workers = Auto(0)
    assert loader.prefetch_factor is None  # torch takes no other value without workers
    with auto(dataset, persistent_workers=True) as loader:
        iterator = iter(loader)
        next(iterator)
        loader.num_workers = 1  # in the middle of an epoch, which the policy would give four
        assert sum(1 for _ in iterator) == 19
        assert len(list(loader)) == 20
        assert (loader.num_workers, len(loader._iterator._workers)) == (1, 1)
        assert loader.stats()["tuning"] is None
        loader.num_workers = "auto"
        assert type(loader.num_workers) is Auto
        list(loader)
        assert loader.stats()["tuning"]["workers"] == loader.num_workers
        del iterator
