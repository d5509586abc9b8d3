"""Settings that take what they are told to take, with noise: races without a machine."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stoker._runtime.simulation.setting import Setting
from stoker._tools.tune.model.block import Block
from stoker._tools.tune.model.race import Race, RaceEntry

MS = 1_000_000


@dataclass
class Plant:
    """``interval_ms`` of a setting's batches; ``noise`` is of a block, ``mood`` of all blocks of a round."""

    interval_ms: Mapping[Setting, float]
    noise: float = 0.02
    mood: float = 0.05
    seed: int = 0
    cpu_ms: Mapping[Setting, float] = field(default_factory=dict)
    memory: Mapping[Setting, int] = field(default_factory=dict)
    failures: Mapping[Setting, str] = field(default_factory=dict)
    foreign: Callable[[int], float] = lambda number: 0.1
    overhead_s: float = 0.1
    blocks: list[Setting] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._mood = 0.0

    def run(self, entry: RaceEntry) -> tuple[Block, float]:
        setting = entry.setting
        number = len(self.blocks)
        self.blocks.append(setting)
        if setting in self.failures:
            return Block(setting, 0, 0, 0, failure=self.failures[setting]), 0.2
        self._mood = 0.9 * self._mood + self._random.gauss(0, self.mood)
        busy = self.foreign(number)
        slowed = self._mood + self._random.gauss(0, self.noise) + (0.3 if busy > 1 else 0.0)
        interval_ns = self.interval_ms[setting] * MS * math.exp(slowed)
        batches = max(entry.least, int(entry.seconds * 1e9 / interval_ns))
        cpu = self.cpu_ms.get(setting, 1.0 + 0.1 * setting.workers)
        block = Block(
            setting,
            batches,
            int(batches * interval_ns),
            int(batches * interval_ns * 0.5),
            job_cpu_ns=int(batches * cpu * MS),
            memory_bytes=self.memory.get(setting, (1 + setting.workers) << 20),
            foreign_cpus=busy,
            runq_share=0.0,
            pressure=0.0,
        )
        return block, block.wall_ns / 1e9 + self.overhead_s


def raced(race: Race, plant: Plant, budget_s: float = 30.0) -> float:
    """Run it to its end; what it took."""
    spent_s = 0.0
    while (entries := race.ask(budget_s - spent_s)) is not None:
        told = []
        for entry in entries:
            block, took_s = plant.run(entry)
            told.append((block, took_s))
            spent_s += took_s
        race.tell(told)
    return spent_s


def workers(*counts: int) -> list[Setting]:
    return [Setting(each) for each in counts]
