"""``num_workers="auto"`` as an argument: what it is stored as, what it begins with, and what frameworks do to loaders."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
from typing import Any

import pytest
import torch

import stoker
from stoker import arguments
from stoker._host.cpus import Cpus
from stoker._runtime.autoscale import initial_workers as initial_workers
from stoker._runtime.autoscale.initial_workers import choose_initial_workers
from stoker._runtime.autoscale.profile import Profile
from stoker._runtime.simulation.setting import Setting
from stoker.arguments import Auto, LeftOpen


class Numbers(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        return index


def machine(usable: int) -> Cpus:
    return Cpus(usable, usable, usable, None, 1, f"this machine has {usable} CPUs")


@pytest.fixture
def profiled(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let a profile be found."""

    def find(setting: Setting, regime: str = "compute", plain: Setting | None = None) -> None:
        profile = Profile("d", 4, "m", setting, regime=regime, made_at="2026-11-16 16:40 UTC", plain=plain)
        monkeypatch.setattr("stoker._runtime.autoscale.profile_files.find", lambda *_, **__: profile)

    return find


def test_it_is_an_int_that_says_what_it_is() -> None:
    number = Auto(3)
    assert (number, number + 1, str(number), f"{number}", repr(number)) == (3, 4, "3", "3", "Auto(3)")
    assert json.dumps({"num_workers": number}) == '{"num_workers": 3}'
    for made in (pickle.loads(pickle.dumps(number)), copy.copy(number), copy.deepcopy(number)):
        assert type(made) is Auto
        assert made == 3


@pytest.mark.parametrize("text", ["automatic", "Auto", "4", ""])
def test_another_text_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="should be a number or 'auto'"):
        stoker.DataLoader(Numbers(), num_workers=text)


@pytest.mark.parametrize(("usable", "workers"), [(1, 1), (2, 2), (3, 2), (8, 7), (192, 8)])
def test_without_a_profile_the_machine_says(usable: int, workers: int) -> None:
    found = choose_initial_workers(Numbers(), 4, found=machine(usable))
    assert found.workers == workers
    assert f"this machine has {usable} CPUs" in found.reason
    assert found.prefetch is None


def test_a_profile_comes_first(profiled: Any) -> None:
    profiled(Setting(workers=12, prefetch=4, split=False), regime="sleep")
    found = choose_initial_workers(Numbers(), 4, found=machine(4))
    assert (found.workers, found.prefetch, found.split) == (12, 4, False)
    assert "2026-11-16" in found.reason


def test_a_profile_is_bounded_by_the_cpus_where_workers_compute(profiled: Any) -> None:
    profiled(Setting(workers=12), regime="compute")
    found = choose_initial_workers(Numbers(), 4, found=machine(4))
    assert found.workers == 4
    assert "bounded by 4" in found.reason


def test_what_could_change_batches_is_not_taken_from_a_profile(profiled: Any) -> None:
    profiled(Setting(workers=16, executor="thread"), regime="sleep")
    found = choose_initial_workers(Numbers(), 4, found=machine(4))
    assert found.workers == 4
    assert "for other arguments, which are yours to pass (num_workers=16, executor='thread')" in found.reason
    assert choose_initial_workers(Numbers(), 4, executor="thread", found=machine(4)).workers == 16


def test_where_threads_have_won_the_best_of_plain_workers_is_taken(profiled: Any) -> None:
    profiled(Setting(16, executor="thread"), regime="sleep", plain=Setting(7, 3))
    found = choose_initial_workers(Numbers(), 4, found=machine(4))
    assert (found.workers, found.prefetch) == (7, 3)
    assert (
        "has 7 as the best without threads, which are yours to pass (num_workers=16, executor='thread')"
        in found.reason
    )
    assert choose_initial_workers(Numbers(), 4, executor="thread", found=machine(4)).workers == 16


def test_a_profile_tells_what_is_best_without_threads(profiled: Any) -> None:
    profiled(Setting(workers=2, threads=8), regime="sleep", plain=Setting(workers=12, prefetch=3))
    found = choose_initial_workers(Numbers(), 4, found=machine(4))
    assert (found.workers, found.prefetch) == (12, 3)
    assert "yours to pass (num_workers=2, threads_per_worker=8)" in found.reason
    asked = choose_initial_workers(Numbers(), 4, threads=8, found=machine(4))
    assert (asked.workers, "yours" in asked.reason) == (2, False)


def test_a_profile_without_workers_leaves_everything_legal(profiled: Any) -> None:
    profiled(Setting(workers=0))
    loader: Any = stoker.DataLoader(
        Numbers(), 4, num_workers="auto", persistent_workers=True, multiprocessing_context="fork", prefetch_factor=3,
        timeout=5, prefetch_epochs=True,
    )  # fmt: skip
    assert (loader.num_workers, type(loader.num_workers)) == (0, Auto)
    assert loader.persistent_workers
    assert loader.prefetch_factor == 3
    assert loader.multiprocessing_context.get_start_method() == "fork"
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_what_the_user_gave_is_not_the_profiles_to_change(profiled: Any) -> None:
    profiled(Setting(workers=2, prefetch=7, split=False))
    given: Any = stoker.DataLoader(Numbers(), 4, num_workers="auto", prefetch_factor=3, split_batches=True)
    assert (given.prefetch_factor, given._resolved().split_batches) == (3, True)
    left: Any = stoker.DataLoader(Numbers(), 4, num_workers="auto")
    assert (left.prefetch_factor, type(left.prefetch_factor)) == (7, LeftOpen)
    assert not left._resolved().split_batches


def test_torchs_own_checks_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initial_workers, "cpus", lambda: machine(4))
    with pytest.raises(ValueError, match="prefetch_factor option should be non-negative"):
        stoker.DataLoader(Numbers(), num_workers="auto", prefetch_factor=-1)
    with pytest.raises(ValueError, match="valid start method"):
        stoker.DataLoader(Numbers(), num_workers="auto", multiprocessing_context="nothing")
    with pytest.raises(ValueError, match="persistent_workers=True as well"):
        stoker.DataLoader(Numbers(), num_workers="auto", prefetch_epochs=True)
    with pytest.raises(ValueError, match="timeout"):
        stoker.DataLoader(Numbers(), num_workers="auto", timeout=-1)


def rebuilt(loader: Any, **changed: Any) -> Any:
    """As Lightning does it: from what an instance has under the names of the constructor's arguments."""
    found = {key: value for key, value in vars(loader).items() if not key.startswith("_")}
    names = inspect.signature(type(loader).__init__).parameters
    arguments = {name: found[name] for name in names if name in found}
    arguments["multiprocessing_context"] = loader.multiprocessing_context
    arguments |= {"batch_sampler": None, "sampler": None, **changed}
    return type(loader)(**arguments)


def test_frameworks_rebuild_it_as_auto() -> None:
    loader: Any = stoker.DataLoader(Numbers(), 4, num_workers="auto", persistent_workers=True)
    loader.num_workers = Auto(loader.num_workers + 3)  # as the autoscaler would
    again = rebuilt(loader, sampler=torch.utils.data.SequentialSampler(Numbers()), shuffle=False)
    assert type(again.num_workers) is Auto
    assert type(again.prefetch_factor) is LeftOpen
    twice = rebuilt(again)
    assert type(twice.num_workers) is Auto
    for copied in (pickle.loads(pickle.dumps(loader)), copy.deepcopy(loader), copy.copy(loader)):
        assert (type(copied.num_workers), copied.num_workers) == (Auto, loader.num_workers)
        assert copied._autoscaler is None
    assert stoker.DataLoader(Numbers(), num_workers=int(loader.num_workers)).num_workers == loader.num_workers


def test_it_can_be_set_later_and_taken_back() -> None:
    loader: Any = stoker.DataLoader(Numbers(), 4)
    assert loader.stats()["tuning"] is None
    loader.num_workers = "auto"
    assert type(loader.num_workers) is Auto
    assert loader.stats()["tuning"]["begun"]["workers"] == loader.num_workers
    with pytest.raises(ValueError, match="should be a number"):
        loader.num_workers = "many"
    loader.num_workers = 0
    assert loader.stats()["tuning"] is None


def test_construction_starts_nothing_and_says_why() -> None:
    loader: Any = stoker.DataLoader(Numbers(), 4, num_workers="auto", name="train")
    told = loader.stats()["tuning"]
    assert told["workers"] == loader.num_workers
    assert told["actions"] == []
    assert told["begun"]["reason"].startswith("no saved profile")
    assert loader._autoscaler is None
    assert loader._resolved().reasons["num_workers"].startswith("auto: no saved profile")
    record = loader.stats()["record"]["loaders"][0]
    assert record["options"]["num_workers"]["why"].startswith("auto: ")


def test_inline_means_no_workers() -> None:
    loader: Any = stoker.DataLoader(Numbers(), 4, num_workers="auto", executor="inline")
    assert (loader.num_workers, type(loader.num_workers)) == (0, Auto)
    assert len(list(loader)) == 3
    assert loader._autoscale_controller() is None


def test_many_workers_of_a_profile_are_no_matter_for_a_warning(profiled: Any) -> None:
    profiled(Setting(workers=32), regime="storage")
    assert stoker.DataLoader(Numbers(), 4, num_workers="auto").num_workers == 32  # warnings are errors here


def test_is_auto() -> None:
    assert arguments.is_auto("auto")
    assert arguments.is_auto(Auto(2))
    assert not arguments.is_auto(2)
