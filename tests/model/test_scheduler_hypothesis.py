"""Larger worlds, sampled: many workers, kills, resizes, split batches and budgets."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from stoker._runtime.scheduler.policy import Policy
from stoker._runtime.scheduler.scheduler import Scheduler
from tests.model.checked_history import Config
from tests.model.world import BATCH_BYTES, Step, World

WORK = ("plan", "end_plan", "receive", "claim", "finish", "fail", "hear")
CONSUME = ("take", "release", "starve")
TROUBLE = ("kill", "fall", "bury", "drain_and_bury", "spawn", "leave", "resize", "withdraw")

TURNS_LIMIT = 10_000
"""Far more turns than any of these worlds has steps."""


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    window = draw(st.integers(1, 12))
    bound = draw(st.booleans())
    return Policy(
        window=window,
        max_window=window + draw(st.sampled_from((0, 0, 8))),
        in_order=draw(st.booleans()),
        bound=bound,
        split=not bound and draw(st.booleans()),
        restarts=draw(st.integers(0, 2)),
        exclude_killers=draw(st.booleans()),
        budget_bytes=BATCH_BYTES * draw(st.sampled_from((0, 0, 1, 3))),
        careful=draw(st.booleans()),
        shared_memory=draw(st.sampled_from((True, True, True, False))),
    )


@st.composite
def configs(draw: st.DrawFn) -> Config:
    policy = draw(policies())
    workers = draw(st.integers(1, 6))
    if not policy.bound and draw(st.booleans()):
        prefetch = draw(st.integers(1, 3))
        deepest = workers * draw(st.sampled_from((prefetch, prefetch, 4)))
        policy = replace(policy, prefetch=prefetch, window=prefetch * workers, max_window=deepest)
    streams: tuple[int, ...] = ()
    if policy.bound and draw(st.booleans()):
        streams = tuple(draw(st.lists(st.integers(0, 8), min_size=workers, max_size=workers)))
        policy = replace(policy, streams=True)
    tickets = draw(st.integers(0, 60))
    rows = draw(st.sampled_from((1, 16, 33, 64, 128)))
    deadly: list[tuple[int, int]] = []
    if policy.exclude_killers and tickets and not streams:
        of = st.tuples(st.integers(0, tickets - 1), st.integers(0, rows - 1))
        deadly = draw(st.lists(of, max_size=4, unique=True))
    return Config(
        policy,
        tickets=tickets,
        workers=workers,
        rows=rows,
        deadly=tuple(deadly),
        streams=streams,
        kills=draw(st.integers(0, 12)),
        fails=draw(st.integers(0, 3)),
        resizes=() if policy.bound else tuple(draw(st.lists(st.integers(1, 6), max_size=3))),
        closes=True,
        hold=draw(st.integers(0, 3)),
    )


class SchedulerMachine(RuleBasedStateMachine):
    """Chooses what happens next; at the end lets the run come to its end by itself, in one of many orders."""

    scheduler_type: type[Scheduler] = Scheduler
    sound = False

    @initialize(config=configs(), turn=st.integers(1, 1 << 20))
    def open(self, config: Config, turn: int) -> None:
        self.world = World(config, self.scheduler_type)
        self.turn = turn
        self.possible = self.world.steps()
        self.sound = True

    def _may(self, kinds: tuple[str, ...]) -> list[Step]:
        return [step for step in self.possible if step.kind in kinds]

    def _do(self, kinds: tuple[str, ...], choice: int) -> None:
        """One step of these kinds, if there is any: a rule that is never refused is what Hypothesis shrinks best."""
        possible = self._may(kinds)
        if possible:
            self.sound = False
            self.world.do(possible[choice % len(possible)])
            self.sound = True
            self.possible = self.world.steps()

    @rule(choices=st.lists(st.integers(0, 11), min_size=1, max_size=20))
    def work(self, choices: list[int]) -> None:
        for choice in choices:
            self._do(WORK, choice)

    @rule(choice=st.integers(0, 3))
    def consume(self, choice: int) -> None:
        self._do(CONSUME, choice)

    @rule(choice=st.integers(0, 11))
    def trouble(self, choice: int) -> None:
        self._do(TROUBLE, choice)

    @precondition(lambda self: self.turn % 4 == 0)
    @rule()
    def close(self) -> None:
        self._do(("close",), 0)

    def teardown(self) -> None:
        if not self.sound:
            return  # what goes on in a broken world would only hide what broke it
        for _ in range(TURNS_LIMIT):
            # An early close is the exception here; after workers have died out it is the only way on.
            steps = [step for step in self.world.steps() if step.kind != "close" or self.world.finish]
            if not steps:
                break
            self.turn = (self.turn * 1_103_515_245 + 12_345) % (1 << 31)
            self.world.do(steps[(self.turn >> 8) % len(steps)])
        self.world.check_end()


def check(machine: type[SchedulerMachine], examples: int, *, shrink: bool = True) -> None:
    """Run a machine, the same examples every time."""
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            phases=phases,
            report_multiple_bugs=False,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_larger_worlds_end_well() -> None:
    check(SchedulerMachine, examples=400)
