"""The order of steps, the budget and all that can go wrong, on sandboxes that are none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Host, Work
from stoker._tools.sandbox.outcome import ProbeFailure
from stoker._tools.tune.answer import AnswerBuilder
from stoker._tools.tune.facts import Target, ThreadSafety
from stoker._tools.tune.model.block import Block
from stoker._tools.tune.model.race import RaceEntry
from stoker._tools.tune.search import Search
from stoker._tools.tune.session import ProbeLost
from stoker.errors import TargetError
from tests.unit.tuning.simulated_blocks import MS, Plant

TORCH = Setting(2, prefetch=2, engine="torch")
LOADER = Target("data.py:train", True, TORCH, 32, 300, False)
DATASET = Target("data.py:pictures", False, Setting(), 32, 300, False)
STREAM = Target("data.py:lines", True, TORCH, 32, None, True, asks_worker=False)
HOST = Host(4.0, "this machine has 4 CPUs", 4, room_bytes=8 << 30)
COMPUTE = Work(32, (40 * MS,) * 20, (39 * MS,) * 20, parent_ns=MS // 2, batch_bytes=1 << 16)


class Law(dict[Setting, float]):
    """What a batch takes, in milliseconds: one worker 40, shared by as many as there are CPUs."""

    def __missing__(self, setting: Setting) -> float:
        if not setting.workers:
            return 41.0
        slow = 1.3 if setting.engine == "torch" else 1.0
        return slow * 40.0 / min(setting.workers, 4) * (1 + 0.02 * max(0, setting.workers - 4))


@dataclass
class Fake:
    """A session whose clock moves with what is asked of it."""

    target: Target = LOADER
    budget_s: float = 45.0
    plant: Plant = field(default_factory=lambda: Plant(Law()))
    host: Host | Exception = HOST
    work: list[Work | Exception] = field(default_factory=lambda: [COMPUTE])
    demand: Demand | BaseException = field(default_factory=lambda: Demand(0))
    safety: ThreadSafety | Exception = field(default_factory=lambda: ThreadSafety(True, "they are equal"))
    loading_s: float = 3.0
    interrupt_at: int | None = None
    probe_failure: Mapping[Setting, ProbeLost] = field(default_factory=dict)
    now: float = 0.0
    asked: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    out: list[int] = field(default_factory=list)

    @property
    def left_s(self) -> float:
        return max(self.budget_s, self.loading_s + self.budget_s / 2) - self.now

    @property
    def spent_s(self) -> float:
        return self.now

    def open(self) -> Target:
        self.now += self.loading_s
        return self.target

    def ask(self, probe: str, *, limit_s: float, within_s: float | None = None, trial: Any = None) -> Any:
        self.asked.append((probe, trial or {}))
        if self.interrupt_at is not None and len(self.asked) > self.interrupt_at:
            raise KeyboardInterrupt
        if probe == "block":
            return self._block(trial)
        if probe == "cache":
            raise ProbeLost("not tried")
        self.now += 2.0
        answer: Any = {"host": self.host, "work": None, "demand": self.demand, "thread_safety": self.safety}[
            probe
        ]
        if probe == "work":
            answer = self.work.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def leave_out(self, index: int) -> bool:
        self.out.append(index)
        return self.out.count(index) == 1

    def _block(self, trial: Mapping[str, Any]) -> Block | None:
        setting = Setting.from_dict(trial["setting"])
        if trial.get("close"):
            return None
        if setting in self.probe_failure:
            self.now += 1.0
            raise self.probe_failure[setting]
        block, took_s = self.plant.run(RaceEntry(setting, trial["seconds"], trial["least"]))
        self.now += took_s
        if trial["step_ns"] and block.batches:
            least_ns = trial["step_ns"] * block.batches
            wall_ns = max(block.wall_ns, least_ns)
            block = Block(setting, block.batches, wall_ns, wall_ns - least_ns, job_cpu_ns=block.job_cpu_ns)
        return block


def tuned(fake: Fake, demand: Demand = Demand(0), **options: Any) -> Any:  # noqa: B008
    search = Search(fake, demand, clock=lambda: fake.now, **options)
    try:
        search.run()
    except KeyboardInterrupt:
        search.stopped = "interrupted"
    return AnswerBuilder(search, search.target.name if search.target is not None else "data.py:train").now()


def measured(tuning: Any) -> set[Setting]:
    return {each.setting for each in tuning.points if each.blocks}


def test_work_that_computes_gets_the_cores():
    found = tuned(Fake())
    assert found.recommended.workers == 4
    assert found.recommended.engine == "stoker"
    assert found.recommended.prefetch is not None
    assert found.failure == ""
    assert found.gain.middle == pytest.approx(1 - 10 / 26, abs=0.08)
    assert found.gain.low < found.gain.middle < found.gain.high
    assert "4 workers" in found.verdict
    assert "torch's with 2 workers" in found.verdict
    assert found.spent_s <= 47
    assert TORCH in measured(found)
    assert found.curve["points"]
    assert found.oracle["error"]["points"] == len(measured(found))


@pytest.mark.parametrize("seed", range(4))
def test_a_repetition_says_the_same_or_that_it_is_not_separated(seed):
    found = tuned(Fake(plant=Plant(Law(), seed=seed, noise=0.04)))
    assert found.recommended.workers == 4 or not found.separated


def test_a_dataset_is_compared_with_no_workers():
    found = tuned(Fake(DATASET))
    assert found.baseline == Setting(0)
    assert found.recommended.workers == 4
    assert "rather than no workers" in found.verdict


def test_where_data_is_no_bottleneck_nothing_is_changed():
    fake = Fake()
    found = tuned(fake, Demand(60 * MS, source="step-ms"))
    assert found.recommended == TORCH
    assert not found.changed
    assert found.stopped == "not the bottleneck"
    assert found.regime == "idle"
    assert found.ceiling < 0.03
    assert "not your problem" in found.verdict
    assert fake.now < 15


TRIFLE = Work(32, (MS // 10,) * 20, (MS // 10,) * 20, parent_ns=MS // 20, batch_bytes=1 << 12)


def test_batches_that_take_next_to_nothing_need_no_race_and_no_workers():
    fake = Fake(replace(LOADER, setting=Setting(engine="torch")), work=[TRIFLE])
    found = tuned(fake)
    assert found.stopped == "no worker can help"
    assert not found.changed
    assert found.separated
    assert found.verdict.startswith("Keep no workers: a batch is made in 0.1 ms")
    assert not [each for each, _ in fake.asked if each == "block"]
    assert fake.now < 10


def test_a_step_that_is_as_short_makes_such_batches_count():
    fake = Fake(replace(LOADER, setting=Setting(engine="torch")), work=[TRIFLE])
    assert tuned(fake, Demand(MS // 5, source="step-ms")).stopped != "no worker can help"


def test_workers_that_make_such_batches_are_compared_with_none():
    fake = Fake(work=[TRIFLE], plant=Plant(Law({Setting(0): 0.2})))
    found = tuned(fake)
    assert found.recommended.workers == 0
    assert not found.starts


def test_with_a_demand_no_more_workers_than_it_needs():
    found = tuned(Fake(DATASET), Demand(22 * MS, source="step-ms"))
    assert found.recommended.workers in (2, 3)
    assert found.ceiling == pytest.approx(1 - 22 / 41, abs=0.1)


def test_a_budget_that_loading_has_spent_gives_the_safe_answer():
    fake = Fake(DATASET, budget_s=1.0)
    found = tuned(fake)
    assert found.recommended == Setting(3, prefetch=2)
    assert found.stopped == "budget"
    assert "budget" in found.failure
    assert "Nothing was measured" in found.verdict
    assert not found.separated
    assert [probe for probe, _ in fake.asked] == ["host"]


def test_a_small_budget_is_kept():
    for budget_s in (4.0, 8.0, 12.0):
        fake = Fake(budget_s=budget_s)
        found = tuned(fake)
        assert fake.now <= fake.loading_s + budget_s + 2.5
        assert found.recommended.workers >= 1


def test_ctrl_c_gives_the_best_so_far():
    early = tuned(Fake(DATASET, interrupt_at=1))
    assert early.stopped == "interrupted"
    assert early.recommended == Setting(3, prefetch=2)
    assert "interrupted" in early.verdict
    late = tuned(Fake(interrupt_at=20))
    assert late.stopped == "interrupted"
    assert late.recommended.workers == 4
    assert late.gain is not None


def test_of_several_loaders_the_first_is_tuned_and_that_is_said():
    found = tuned(Fake(replace(DATASET, others=2), budget_s=4.0))
    assert "The target has 3 loaders: this answer is for the first one." in found.warnings


def test_ctrl_c_before_the_race_gives_what_the_replay_says():
    found = tuned(Fake(DATASET, interrupt_at=2))
    assert not found.points
    assert "a replay of one worker's batches suggests 4 workers" in found.verdict
    assert found.recommended.workers == 4
    assert not found.separated


def test_samples_that_all_raise_end_in_a_safe_answer():
    found = tuned(Fake(DATASET, work=[ProbeLost("no batch could be made: sample 0: ValueError: boom")]))
    assert found.stopped == "failed"
    assert "boom" in found.failure
    assert "boom" in found.verdict
    assert found.recommended == Setting(3, prefetch=2)


def test_without_measurements_a_loader_keeps_what_the_machine_does_not_speak_against():
    sane = tuned(Fake(work=[ProbeLost("x")]))
    assert sane.recommended == TORCH
    assert not sane.changed
    much = Target("data.py:train", True, Setting(40, prefetch=4, engine="torch"), 32, 300, False)
    assert tuned(Fake(much, work=[ProbeLost("x")])).recommended == Setting(3, prefetch=4, engine="torch")


def test_a_sample_that_ends_the_process_is_left_out():
    crash = ProbeLost(
        "it crashed at sample 7: killed by SIGSEGV", ProbeFailure("died", 7, "killed by SIGSEGV")
    )
    fake = Fake(work=[crash, COMPUTE])
    found = tuned(fake)
    assert fake.out == [7]
    assert found.recommended.workers == 4
    assert any("sample 7" in each for each in found.warnings)


def test_a_sample_that_hangs_twice_ends_it():
    hang = ProbeLost("it hung at sample 3: no answer for 15 s", ProbeFailure("hung", 3, "no answer for 15 s"))
    found = tuned(Fake(DATASET, work=[hang, hang, COMPUTE]))
    assert "hung" in found.failure
    assert found.recommended == Setting(3, prefetch=2)


def test_a_setting_that_ends_the_process_leaves_and_the_rest_goes_on():
    dead = {Setting(4, prefetch=2): ProbeLost("it took too much memory: 9 GiB of 8")}
    found = tuned(Fake(probe_failure=dead))
    assert found.recommended.workers in (3, 5, 6)
    assert any("too much memory" in each.failure for each in found.points)
    assert any("Could not be run: 4 workers" in each for each in found.warnings)


def test_a_block_that_a_sample_ended_is_run_again_without_it():
    crash = ProbeLost(
        "it crashed at sample 7: killed by SIGSEGV", ProbeFailure("died", 7, "killed by SIGSEGV")
    )
    fake = Fake(probe_failure={Setting(4, prefetch=2): crash})
    found = tuned(fake)
    assert fake.out == [7, 7]
    assert [each.setting for each in found.points if each.failure] == [Setting(4, prefetch=2)]
    assert sum("sample 7" in each for each in found.warnings) >= 1


def test_settings_that_all_end_the_process_one_after_the_other_leave_a_safe_answer():
    class All(dict[Setting, ProbeLost]):
        def __contains__(self, setting: object) -> bool:
            return True

        def __missing__(self, setting: Setting) -> ProbeLost:
            return ProbeLost("it crashed: killed by SIGKILL", ProbeFailure("died", None, "killed by SIGKILL"))

    found = tuned(Fake(DATASET, probe_failure=All()))
    assert "SIGKILL" in found.failure
    assert found.recommended == Setting(3, prefetch=2)


def test_with_time_for_the_baseline_alone_it_is_kept():
    found = tuned(Fake(budget_s=10.0, loading_s=5.0), Demand(5 * MS, source="step-ms"))
    assert {each.setting for each in found.points} >= {TORCH}
    assert found.recommended.workers >= 2


def test_with_time_for_the_baseline_alone_a_replay_that_promises_much_is_followed():
    slow = Setting(1, prefetch=2, engine="torch")
    waiting = Work(32, (80 * MS,) * 20, (MS,) * 20, parent_ns=MS // 20, batch_bytes=1 << 12)
    fake = Fake(replace(LOADER, setting=slow), budget_s=11.0, loading_s=5.0, work=[waiting])
    fake.plant = Plant(Law({slow: 200.0}))
    found = tuned(fake, Demand(5 * MS, source="step-ms"))
    assert [each.setting for each in found.points if each.blocks] == [slow]
    assert found.recommended.workers > 4
    assert "a replay of one worker's batches suggests" in found.verdict
    assert not found.separated


def test_when_every_setting_fails_the_answer_is_safe():
    class All(dict[Setting, str]):
        def __contains__(self, setting: object) -> bool:
            return True

        def __missing__(self, setting: Setting) -> str:
            return "RuntimeError: no shared memory"

    found = tuned(Fake(DATASET, plant=Plant(Law(), failures=All())))
    assert found.stopped == "failed"
    assert "no shared memory" in found.failure
    assert found.recommended == Setting(3, prefetch=2)


def test_a_stream_that_is_not_sharded_gets_one_worker_and_a_warning():
    fake = Fake(STREAM)
    found = tuned(fake)
    assert {each.workers for each in measured(found) - {TORCH}} <= {0, 1}
    assert any("whole stream" in each for each in found.warnings)
    assert tuned(Fake(STREAM, work=[ProbeLost("x")])).recommended.workers == 1


def test_a_step_function_that_is_not_there_is_told_at_once():
    fake = Fake(demand=ProbeLost("the step function cannot be had: t.py has no 'stp': did you mean step?"))
    with pytest.raises(TargetError, match="did you mean step"):
        tuned(fake, step="t.py:stp")
    assert [probe for probe, _ in fake.asked] == ["demand"]


def test_a_step_function_that_raises_is_a_warning():
    found = tuned(Fake(demand=ProbeLost("the step raised: ZeroDivisionError")), has_step=True)
    assert found.recommended.workers == 4
    assert any("ZeroDivisionError" in each for each in found.warnings)
    assert found.demand.step_ns == 0


def test_a_machine_that_cannot_be_looked_at_is_looked_at_from_outside():
    found = tuned(Fake(host=ProbeLost("the probe failed")))
    assert found.host.cpus >= 1
    assert any("from outside" in each for each in found.warnings)


def test_without_an_idle_core_it_says_so():
    found = tuned(Fake(plant=Plant(Law(), foreign=lambda number: 3.9)))
    assert any("no CPU idle" in each for each in found.warnings)
    assert found.recommended.workers >= 2


def test_a_daemonic_process_gets_no_workers():
    target = Target("data.py:train", True, Setting(0), 32, 300, False, daemonic=True)
    assert tuned(Fake(target)).recommended == Setting(0)
    assert tuned(Fake(target, work=[ProbeLost("x")])).recommended == Setting(0)


def test_losers_are_closed_while_the_race_goes_on():
    fake = Fake()
    tuned(fake)
    closed = [
        trial["setting"]["workers"] for probe, trial in fake.asked if probe == "block" and trial.get("close")
    ]
    assert closed


def test_every_answer_fits_a_screen():
    for fake in (Fake(), Fake(DATASET), Fake(STREAM), Fake(work=[ProbeLost("x")])):
        found = tuned(fake)
        lines = [found.verdict, *found.why, *found.warnings, found.limit]
        assert sum(1 + len(each) // 100 for each in lines) <= 24
