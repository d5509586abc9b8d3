"""The list of knobs: a knob that is added to it is tried, predicted, reported and patched, and no other file names it."""

from __future__ import annotations

import pkgutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import stoker
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Host, Work
from stoker._tools.doctor.patches.patch import WantedEdit, patched
from stoker._tools.sandbox.target import subject_of
from stoker._tools.tune import knobs
from stoker._tools.tune.edits import call, edits
from stoker._tools.tune.facts import Target
from stoker._tools.tune.forms import data, screen
from stoker._tools.tune.forms.words import setting_name
from stoker._tools.tune.instruments.bench_loader import BenchLoader
from stoker._tools.tune.knobs.knob import Knob
from stoker._tools.tune.model.candidates import KnobContext
from stoker._tools.tune.model.prior import predict
from stoker._tools.tune.model.standings import effort
from stoker._tools.tune.model.verdict import described
from stoker._tools.tune.probes import demand
from stoker._tools.tune.probes.target import probe
from stoker.arguments import ARGUMENTS
from tests.unit.tuning.simulated_blocks import Plant
from tests.unit.tuning.test_search import COMPUTE, HOST, Fake, Law, measured, tuned

DATA = TensorDataset(torch.zeros(10, 2))
UNORDERED = (("in_order", False),)
SOURCE = """\
from torch.utils.data import DataLoader

loader = DataLoader(pictures, batch_size=32, num_workers=2)
"""


class InOrder(Knob):
    """Batches in the order in which they are ready. Predicted to halve the work, so that the prediction can be seen."""

    name = "in_order"
    default = True

    def values(self, best: Setting, context: KnobContext) -> tuple[bool, ...]:
        return (True, False)

    def replayed_work(self, setting: Setting, host: Host, work: Work) -> Work:
        if not self.is_changed(setting):
            return work
        halved: dict[str, Any] = {
            name: tuple(each // 2 for each in getattr(work, name)) for name in ("batch_ns", "cpu_ns")
        }
        return replace(work, **halved)


class FasterUnordered(Law):
    def __missing__(self, setting: Setting) -> float:
        return super().__missing__(setting) * (0.7 if setting.extra == UNORDERED else 1.0)


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Knob:
    knob = InOrder()
    monkeypatch.setattr(knobs, "KNOBS", (*knobs.KNOBS, knob))
    return knob


def target(**more: Any) -> Target:
    written = [(each.name, repr(each.default)) for each in knobs.KNOBS]
    written[0] = ("num_workers", "2")
    given: dict[str, Any] = {"site": "train.py:3", "line": 3, "file": "train.py", "written": tuple(written)}
    found = Target("train.py:loader", True, Setting(2, prefetch=2, engine="torch"), 32, 300, False, **given)
    return replace(found, **more)


class TestAnAddedKnob:
    def test_is_tried_and_recommended_where_it_is_faster(self, added: Knob) -> None:
        found = tuned(Fake(target(), plant=Plant(FasterUnordered())))
        assert any(each.extra == UNORDERED for each in measured(found))
        assert found.recommended.extra == UNORDERED
        assert found.recommended.engine == "stoker"

    def test_is_tried_and_left_where_it_gains_nothing(self, added: Knob) -> None:
        found = tuned(Fake(target()))
        assert any(each.extra == UNORDERED for each in measured(found))
        assert found.recommended.extra == ()

    def test_is_not_tried_without_its_entry(self) -> None:
        found = tuned(Fake(target(), plant=Plant(FasterUnordered())))
        assert not any(each.extra for each in measured(found))

    def test_is_reported(self, added: Knob) -> None:
        found = tuned(Fake(target(), plant=Plant(FasterUnordered())))
        assert "with in_order=False" in found.verdict
        assert "in_order=False" in screen.render(found)
        told = data.as_json(found)
        assert told["recommended"]["in_order"] is False
        assert told["settings"]["recommended"]["extra"] == {"in_order": False}
        assert data.from_json(told).recommended == found.recommended
        assert setting_name(Setting(3, prefetch=4, extra=UNORDERED)) == "3 workers × 4, in_order=False"
        assert described(Setting(2, threads=8, extra=UNORDERED)) == (
            "2 workers with 8 threads each and in_order=False"
        )

    def test_is_patched(self, added: Knob) -> None:
        found = tuned(Fake(target(), plant=Plant(FasterUnordered())))
        assert "in_order=False" in found.edits[0].after
        result = patched(SOURCE, [WantedEdit("tune", each, 3) for each in found.edits])
        assert result.refused == ()
        assert "in_order=False" in result.text
        assert "from stoker import DataLoader" in result.text

    def test_is_taken_out_by_a_patch(self, added: Knob) -> None:
        has = Setting(2, prefetch=2, extra=UNORDERED)
        written = (("num_workers", "2"), ("prefetch_factor", "2"), ("in_order", "False"))
        *_, edit = edits(target(setting=has, written=written), Setting(2, prefetch=2))
        assert (edit.before, edit.after) == ("in_order=False", "")

    def test_is_predicted(self, added: Knob) -> None:
        plain = Setting(2, prefetch=2)
        slow = predict(plain, HOST, COMPUTE, Demand(0)).interval_ns
        fast = predict(added.put(plain, False), HOST, COMPUTE, Demand(0)).interval_ns
        assert fast < 0.6 * slow

    def test_counts_as_effort(self, added: Knob) -> None:
        plain = Setting(2)
        assert effort(added.put(plain, False)) == effort(plain) + 1

    @pytest.mark.parametrize("kind", [DataLoader, stoker.DataLoader])
    def test_is_read_from_a_loader(self, added: Knob, kind: Any) -> None:
        found = probe(subject_of(kind(DATA, num_workers=2, in_order=False), name="data.py:it"))
        assert found.setting.extra == UNORDERED
        assert dict(found.written)["in_order"] == "False"
        assert probe(subject_of(kind(DATA, num_workers=2), name="data.py:it")).setting.extra == ()

    def test_is_what_the_timed_loader_has(self, added: Knob) -> None:
        subject = subject_of(stoker.DataLoader(DATA), name="data.py:it")
        bench = BenchLoader(subject, Setting(1, extra=UNORDERED))
        assert bench.loader.in_order is False
        bench.close()


class TestTheList:
    def test_every_module_of_the_package_has_one_knob_in_it(self) -> None:
        modules = [each.name for each in pkgutil.iter_modules(knobs.__path__) if each.name != "knob"]
        found = {type(each).__module__.rpartition(".")[2]: each.name for each in knobs.KNOBS}
        assert found == {each: each for each in modules}

    def test_every_argument_of_a_setting_is_a_knobs(self) -> None:
        every = Setting(
            2, prefetch=2, executor="thread", start_method="fork", split=True, threads=2, pin=True,
            extra=(("device", "cuda"),),
        )  # fmt: skip
        assert sorted(every.arguments()) == sorted(each.name for each in knobs.KNOBS)

    def test_the_knobs_are_the_arguments_that_the_table_calls_tunable(self) -> None:
        tunable = {each.name for each in ARGUMENTS if each.tunable}
        assert {each.name for each in knobs.KNOBS} == tunable

    @pytest.mark.parametrize("knob", knobs.KNOBS, ids=lambda knob: knob.name)
    def test_each_holds_its_default_in_a_plain_setting(self, knob: Knob) -> None:
        plain = Setting()
        assert knob.value(plain) == knob.default
        assert knob.put(plain, knob.default) == plain
        assert knob.effort(plain) == 0

    def test_a_knobs_module_names_no_other_layer(self) -> None:
        """Knobs are leaves of the tuner: what the model knows reaches them through their context."""
        for each in pkgutil.iter_modules(knobs.__path__):
            module = import_module(f"{knobs.__name__}.{each.name}")
            lines = Path(str(module.__file__)).read_text().splitlines()
            imports = [line for line in lines if line.startswith(("from stoker._tools", "import stoker"))]
            assert all(line.startswith("from stoker._tools.tune.knobs.") for line in imports), each.name


class TestExtraArguments:
    def test_a_setting_without_any_has_the_form_of_before(self) -> None:
        assert "extra" not in Setting(2).as_dict()
        assert Setting.from_dict(Setting(2).as_dict()) == Setting(2)

    def test_with_some_it_comes_back(self) -> None:
        setting = Setting(2, extra=(("in_order", False), ("memory_budget", "1 GB")))
        assert Setting.from_dict(setting.as_dict()) == setting
        assert call(setting, 4).endswith('in_order=False, memory_budget="1 GB")')

    @pytest.mark.parametrize("extra", [["in_order"], {"in order": 1}, {"in_order": [1]}, {3: 1}, None])
    def test_a_damaged_one_is_refused(self, extra: Any) -> None:
        with pytest.raises(ValueError, match="extra"):
            Setting.from_dict({"workers": 2, "extra": extra})


class TestDevice:
    """Settings keep the device of the target: its step may need batches there."""

    @pytest.mark.parametrize("device", ["cuda:1", torch.device("cuda", 1)])
    def test_it_is_read_as_text_and_kept_with_its_prefetch(self, device: Any) -> None:
        loader = stoker.DataLoader(DATA, num_workers=2, device=device, device_prefetch=3)
        subject = subject_of(loader, name="data.py:it")
        found = probe(subject)
        assert found.setting.extra == (("device", "cuda:1"),)
        assert dict(found.written)["device"] == "'cuda:1'"
        bench = BenchLoader(subject, found.setting)
        assert (bench.loader.device, bench.loader.device_prefetch) == ("cuda:1", 3)
        bench.close()
        assert edits(found, found.setting) == ()
        assert "device" not in edits(found, replace(found.setting, workers=4))[0].after

    def test_a_loader_without_one_gets_none(self) -> None:
        for loader in (DataLoader(DATA, num_workers=2), stoker.DataLoader(DATA, num_workers=2)):
            assert probe(subject_of(loader, name="data.py:it")).setting.extra == ()

    def test_it_is_typed_where_it_is_faster(self) -> None:
        wanted = Setting(2, prefetch=2, extra=(("device", "auto"),))
        assert 'device="auto"' in edits(target(setting=Setting(2, prefetch=2)), wanted)[0].after

    def test_a_step_is_measured_on_batches_that_are_there(self) -> None:
        at_home, away = (
            subject_of(stoker.DataLoader(DATA, device=each), name="it") for each in (None, "cuda")
        )
        assert demand._ready_made(at_home) == Setting(0, engine="torch")
        assert demand._ready_made(away) == Setting(0, extra=(("device", "cuda"),))
