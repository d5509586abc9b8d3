"""A block: one setting, run for a moment."""

from __future__ import annotations

from dataclasses import dataclass

from stoker._runtime.simulation.setting import Setting


@dataclass(frozen=True, slots=True)
class Block:
    """After the first window, which was made while nobody looked. Times in nanoseconds, of the whole block unless said."""

    setting: Setting
    batches: int
    wall_ns: int
    wait_ns: int
    """Of the wall time, in ``next()``."""
    batch_ns: tuple[int, ...] = ()
    """What making each batch took its worker, where the engine tells: a sample of them."""
    first_ns: int | None = None
    """From ``iter()`` to the first batch, workers' start included; only of a setting's first block."""
    parent_cpu_ns: int = 0
    job_cpu_ns: int = 0
    """Of the training process and all workers."""
    runq_share: float | None = None
    """Share of the time that workers were ready to run and had no CPU."""
    foreign_cpus: float | None = None
    """That other programs had."""
    pressure: float | None = None
    """Share of the time that somebody waited for a CPU (PSI)."""
    busy: float | None = None
    """Share of the time that workers were at work."""
    memory_bytes: int | None = None
    """What workers and undelivered batches take."""
    failure: str = ""
    """Why there is nothing to measure, in a line; all else is then 0."""

    @property
    def interval_ns(self) -> float:
        """Between two batches."""
        return self.wall_ns / self.batches if self.batches else 0.0

    @property
    def stall(self) -> float:
        """Share of the wall time that the loop waited."""
        return self.wait_ns / self.wall_ns if self.wall_ns else 0.0
