"""What making a batch takes, measured: what the prior, the replay and the regime are computed from."""

from __future__ import annotations

from dataclasses import dataclass

ROUSING_NS = 250_000
ROUSING_SHARE = 0.5
"""A loop that waits for every batch falls asleep and wakes up for each, with cold caches: half of a small ``parent_ns`` is that."""


@dataclass(frozen=True, slots=True)
class Work:
    """Of one worker that had the machine for itself. Per batch, in the sampler's order, in nanoseconds. None: not measured.

    ``batch_ns[i] == cpu_ns[i] + off_ns[i]``, the time on the run queue left out: it is not the batch's own.
    """

    rows: int
    """Samples in a batch."""
    batch_ns: tuple[int, ...]
    """Fetch and collation of each batch that was made."""
    cpu_ns: tuple[int, ...]
    """Of these, on a CPU (all threads of the worker)."""
    collate_ns: int = 0
    """Of a batch, typically."""
    handover_ns: int = 0
    """Of a worker for sending a batch that is made: typically."""
    parent_ns: int = 0
    """CPU time of the training process for a batch that it waited for (m)."""
    batch_bytes: int = 0
    worker_bytes: int | None = None
    """Private memory that a worker takes."""
    cold_ns: int | None = None
    warm_ns: int | None = None
    """The same samples the first time and again: a batch, typically. What is in between is storage."""
    read_bytes: int | None = None
    """Read from storage for a batch."""
    threads_gain: float | None = None
    """How much faster two threads made the samples than one (g): 2 the GIL is no matter, 1 it is all."""
    start_ns: int | None = None
    """From the start of a worker to its first batch, beyond that batch."""
    slow_ns: tuple[int, ...] = ()
    """The slowest row of each batch: what neither threads nor other workers can divide. Empty: rows were not timed."""
    queued_ns: tuple[int, ...] = ()
    """Of each batch beside ``batch_ns``: ready to run, and a neighbour had the CPU. Not the batch's own; replayed all the same."""
    bad: tuple[int, ...] = ()
    """Indices of samples that raise, as far as they were met; they are left out of all the rest."""
    bad_text: str = ""
    """What one of these said."""

    @property
    def typical_ns(self) -> float:
        """The mean: what throughput follows from."""
        return sum(self.batch_ns) / max(1, len(self.batch_ns))

    @property
    def whole_ns(self) -> float:
        """What a batch takes a worker, hand-over included (S)."""
        return self.typical_ns + self.handover_ns

    @property
    def handling_ns(self) -> float:
        """CPU time of the training process for a batch that is ready: ``parent_ns`` without falling asleep and waking up."""
        return self.parent_ns - min(ROUSING_NS, ROUSING_SHARE * self.parent_ns)

    @property
    def typical_cpu_ns(self) -> float:
        return sum(self.cpu_ns) / max(1, len(self.cpu_ns))

    @property
    def off_share(self) -> float:
        """How much of the time a worker waits for something else than a CPU."""
        whole = self.typical_ns
        return max(0.0, 1.0 - self.typical_cpu_ns / whole) if whole else 0.0

    @property
    def variation(self) -> float:
        """Coefficient of variation of batch times."""
        count, mean = len(self.batch_ns), self.typical_ns
        if count < 2 or not mean:
            return 0.0
        return float((sum((each - mean) ** 2 for each in self.batch_ns) / (count - 1)) ** 0.5 / mean)


@dataclass(frozen=True, slots=True)
class Host:
    """What there is to work with, for one rank. None: not known."""

    cpus: float
    """That this rank may count on, the training process's own included."""
    reason: str = ""
    """Where that number comes from, in words."""
    machine_cpus: int = 1
    ranks: int = 1
    room_bytes: int | None = None
    """Memory that could still be taken."""
    shm_bytes: int | None = None
    descriptors: int | None = None
    accelerator: str | None = None
    """Kind of the accelerator, if any. Pinning pays only with one."""
    copy_bytes_per_s: float | None = None
    """How fast one core copies memory that is in no cache."""
    gil: bool = True
    start_method: str = "fork"
    """What the loader would use by itself."""
    shipment_bytes: int | None = None
    shipment_ns: int | None = None
    """The dataset, pickled for spawned workers: its size, and the time it took."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Time of one training step of ``burst`` batches, without waiting for data."""

    step_ns: int
    """0: as fast as it can; nothing is known of the loop."""
    cpu_ns: int = 0
    """Of it, on a CPU of this machine."""
    source: str = "none"
    """ "step-ms", "step", "record", "none"."""
    burst: int = 1
    """Batches that are pulled back to back (gradient accumulation)."""

    @property
    def batch_ns(self) -> float:
        """Of the step, for one batch (T): the interval when data takes no time at all."""
        return self.step_ns / max(1, self.burst)
