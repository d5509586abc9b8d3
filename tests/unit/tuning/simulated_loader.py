"""A loader and a training loop in virtual time, to try the policy on. It does not use the replay that the policy uses."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from stoker._runtime.autoscale.policy import AutoscalePolicy
from stoker._runtime.autoscale.types import SAMPLED, AutoscaleAction, AutoscaleBounds, Observation

Times = Callable[[random.Random, int], tuple[float, float]]
"""(CPU, off-CPU) seconds of batch number so-and-so."""

_TICK_S = 0.25
"""How far it goes without looking at the neighbours."""


@dataclass
class Job:
    """A batch that a worker is on."""

    number: int
    cpu_s: float
    off_s: float
    began_s: float
    off_until_s: float
    left_s: float


@dataclass
class Plant:
    """``step`` gives (CPU, off-CPU) seconds of a step at a time, ``foreign`` how many CPUs others want then."""

    cpus: float
    times: Times
    step: Callable[[float], tuple[float, float]]
    workers: int = 2
    prefetch: int = 2
    foreign: Callable[[float], float] = lambda now_s: 0.0
    parent_s: float = 0.0
    storage_lanes: int = 0
    """How many may be off the CPU at once without slowing each other down; 0: all."""
    seed: int = 0
    worker_bytes: int | None = None
    room_bytes: int | None = None
    throttled: float = 0.0
    noise: float = 0.0
    now_s: float = 0.0
    window: int = 0
    _jobs: list[Job] = field(default_factory=list)
    _ready: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.window = self.window or self.workers * self.prefetch
        self._planned = self._taken = self._queued = 0
        self._recent: deque[Job] = deque(maxlen=SAMPLED)
        self._took: deque[float] = deque(maxlen=SAMPLED)
        self._busy_s = self._foreign_s = self._own_s = 0.0
        self._cpu_s = self._off_s = self._whole_s = 0.0
        self._made = 0

    def run(self, seconds: float, steps: int) -> Observation:
        """Go on until both have passed, and tell what was seen."""
        began_s, wait_s, done, waits, blocked = self.now_s, 0.0, 0, 0, 0
        self._busy_s = self._foreign_s = self._own_s = self._cpu_s = self._off_s = self._whole_s = 0.0
        self._made = 0
        while self.now_s - began_s < seconds or done < steps:
            asked_s = self.now_s
            self._advance(cpu_s=self.parent_s)
            waited = behind = False
            while self._taken not in self._ready:
                waited = True
                behind = behind or bool(self._ready)
                self._advance_once(None)
            wait_s += self.now_s - asked_s
            waits += waited
            blocked += waited and behind
            self._ready.discard(self._taken)
            self._taken += 1
            self._plan()
            cpu_s, off_s = self.step(self.now_s)
            spread = 1 + self.noise * self.rng.uniform(-1, 1)
            self._advance(cpu_s=cpu_s * spread)
            self._advance(off_s=off_s * spread)
            done += 1
        wall_s = self.now_s - began_s
        made = max(1, self._made)
        return Observation(
            steps=done,
            wall_ns=int(wall_s * 1e9),
            wait_ns=int(wait_s * 1e9),
            workers=self.workers,
            window=self.window,
            busy=self._busy_s / wall_s / max(1, self.workers),
            waits=waits,
            blocked=blocked,
            cpu_ns=self._cpu_s / made * 1e9,
            off_ns=self._off_s / made * 1e9,
            runq_ns=max(0.0, self._whole_s - self._cpu_s - self._off_s) / made * 1e9,
            batch_ns=tuple(int(each * 1e9) for each in self._took),
            own_cpu_ns=int(self._own_s * 1e9),
            foreign_cpus=self._foreign_s / wall_s,
            worker_bytes=self.worker_bytes,
            room_bytes=self.room_bytes,
            throttled=self.throttled,
        )

    def apply(self, action: AutoscaleAction) -> None:
        """At once: workers that have to go finish what they are on."""
        self.workers, self.window = action.workers, action.window

    def _plan(self) -> None:
        while self._planned - self._taken < self.window:
            self._planned += 1
        while self._queued < self._planned and len(self._jobs) < self.workers:
            cpu_s, off_s = self.times(self.rng, self._queued)
            slower = 1.0
            if self.storage_lanes:
                off = sum(each.off_until_s > self.now_s for each in self._jobs) + 1
                slower = max(1.0, off / self.storage_lanes)
            off_s *= slower
            self._jobs.append(Job(self._queued, cpu_s, off_s, self.now_s, self.now_s + off_s, cpu_s))
            self._queued += 1

    def _advance(self, *, cpu_s: float = 0.0, off_s: float = 0.0) -> None:
        """Until the training process has computed, or slept, for so long."""
        until_s = self.now_s + off_s
        while off_s and self.now_s < until_s - 1e-12:
            self._advance_once(until_s - self.now_s)
        while cpu_s > 1e-12:
            cpu_s -= self._advance_once(cpu_s, computing=True)

    def _advance_once(self, most_s: float | None, *, computing: bool = False) -> float:
        """To the next event; how much CPU time the training process had."""
        self._plan()
        running = [each for each in self._jobs if each.off_until_s <= self.now_s + 1e-12]
        wanted = self.foreign(self.now_s)
        demand = len(running) + computing + wanted
        rate = min(1.0, self.cpus / demand) if demand else 1.0
        ahead = [
            each.off_until_s - self.now_s for each in self._jobs if each.off_until_s > self.now_s + 1e-12
        ]
        ahead += [each.left_s / rate for each in running]
        if most_s is not None:
            ahead.append(most_s / rate if computing else most_s)
        passed_s = max(1e-9, min(_TICK_S, *ahead) if ahead else _TICK_S)
        for each in running:
            each.left_s -= passed_s * rate
        self.now_s += passed_s
        self._busy_s += passed_s * min(len(self._jobs), self.workers)
        self._foreign_s += passed_s * wanted * rate
        self._own_s += passed_s * rate * computing
        for each in running:
            if each.left_s <= 1e-12:
                self._finish(each)
        return passed_s * rate * computing

    def _finish(self, job: Job) -> None:
        self._jobs.remove(job)
        self._ready.add(job.number)
        self._took.append(self.now_s - job.began_s)
        self._made += 1
        self._cpu_s += job.cpu_s
        self._off_s += job.off_s
        self._whole_s += self.now_s - job.began_s


@dataclass(frozen=True)
class Flight:
    """What a policy did with a plant: ``history`` has (time, workers, interval in s) of every window."""

    actions: list[tuple[float, AutoscaleAction]]
    history: list[tuple[float, int, float]]

    @property
    def changes(self) -> list[tuple[float, AutoscaleAction]]:
        return [each for each in self.actions if each[1].kind != "hold"]

    def interval_s(self, since_s: float, until_s: float = float("inf")) -> float:
        """Mean interval of the windows that ended in that time."""
        found = [each for at_s, _, each in self.history if since_s <= at_s <= until_s]
        return sum(found) / len(found)


def fly(
    plant: Plant, bounds: AutoscaleBounds, seconds: float, policy: AutoscalePolicy | None = None
) -> Flight:
    """The closed loop. A window after a change is warm-up, as for the autoscaler."""
    policy = policy or AutoscalePolicy(bounds)
    flight = Flight([], [])
    until_s = plant.now_s + seconds
    while plant.now_s < until_s:
        window = plant.run(policy.period.seconds, policy.period.steps)
        flight.history.append((plant.now_s, plant.workers, window.interval_ns / 1e9))
        action = policy.decide(window)
        if action is not None:
            flight.actions.append((plant.now_s, action))
            if action.kind != "hold":
                plant.apply(action)
                plant.run(0.2, 1)
    return flight


def best(make: Callable[[int], Plant], counts: tuple[int, ...], seconds: float = 8.0) -> tuple[int, float]:
    """The fixed count with the shortest interval, and that interval in seconds."""
    found = []
    for count in counts:
        plant = make(count)
        plant.run(1.0, 2 * plant.window)  # what is ready before anybody looks would count as quick
        found.append((plant.run(seconds, 8 * count).interval_ns / 1e9, count))
    interval_s, count = min(found)
    return count, interval_s
