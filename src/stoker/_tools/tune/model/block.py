"""A block: one setting, run for a short time."""

from __future__ import annotations

from dataclasses import dataclass

from stoker._runtime.simulation.setting import Setting


@dataclass(frozen=True, slots=True)
class Block:
    """Measured after the first window, which was made before the block. Times in nanoseconds, of the whole block unless noted."""

    setting: Setting
    batches: int
    wall_ns: int
    wait_ns: int
    """The part of the wall time in ``next()``."""
    batch_ns: tuple[int, ...] = ()
    """A worker's time for each of some batches, if the engine records it."""
    first_ns: int | None = None
    """From ``iter()`` to the first batch, workers' start included. Only the first block of a setting has it."""
    parent_cpu_ns: int = 0
    job_cpu_ns: int = 0
    """CPU time of the training process and all workers."""
    runq_share: float | None = None
    """Share of the time in which workers were ready to run and had no CPU."""
    foreign_cpus: float | None = None
    """CPUs that other programs used."""
    pressure: float | None = None
    """Share of the time in which any process waited for a CPU (PSI)."""
    busy: float | None = None
    """Share of the time in which workers were busy."""
    memory_bytes: int | None = None
    """Memory of workers and undelivered batches."""
    failure: str = ""
    """The reason in a line if nothing was measured; all other values are then 0."""

    @property
    def interval_ns(self) -> float:
        """The time between two batches."""
        return self.wall_ns / self.batches if self.batches else 0.0

    @property
    def stall(self) -> float:
        """Share of the wall time in which the loop waited."""
        return self.wait_ns / self.wall_ns if self.wall_ns else 0.0
