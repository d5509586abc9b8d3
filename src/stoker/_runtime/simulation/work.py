"""The measured work of making a batch, the host and the demand: the input of the prior, the replay and the regime."""

from __future__ import annotations

from dataclasses import dataclass

ROUSING_NS = 250_000
ROUSING_SHARE = 0.5
"""A loop that waits for every batch sleeps and wakes up for each, with cold caches. That is half of a small ``parent_ns``."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one worker that had the machine for itself. Per batch, in the sampler's order, in nanoseconds. None: not
    measured.

    ``batch_ns[i] == cpu_ns[i] + off_ns[i]``, without the time on the run queue, which other programs cause.
    """

    rows: int
    """Samples in a batch."""
    batch_ns: tuple[int, ...]
    """Fetch and collation of each batch."""
    cpu_ns: tuple[int, ...]
    """CPU time in ``batch_ns``, of all threads of the worker."""
    collate_ns: int = 0
    """Typical collation time of a batch."""
    handover_ns: int = 0
    """A worker's typical time for sending a finished batch."""
    parent_ns: int = 0
    """CPU time of the training process for a batch that it waited for (m)."""
    batch_bytes: int = 0
    worker_bytes: int | None = None
    """Private memory of a worker."""
    cold_ns: int | None = None
    warm_ns: int | None = None
    """The typical time of the same batches the first time and again. The difference is storage."""
    read_bytes: int | None = None
    """Bytes read from storage for a batch."""
    threads_gain: float | None = None
    """How much faster two threads made the samples than one (g). 2: the GIL does not matter. 1: it decides everything."""
    keeps_batches: bool = False
    """Whether ``collate_fn`` keeps the memory of its batches, or may do so: threads are no choice then."""
    start_ns: int | None = None
    """The time from a worker's start to its first batch, without making that batch."""
    slow_ns: tuple[int, ...] = ()
    """The slowest row of each batch. Neither threads nor other workers can divide it. Empty: rows were not timed."""
    queued_ns: tuple[int, ...] = ()
    """The time of each batch on the run queue, beside ``batch_ns``: another program had the CPU. The replay includes it."""
    bad: tuple[int, ...] = ()
    """Indices of samples that raise, as far as known. All other values leave them out."""
    bad_text: str = ""
    """The message of one of them."""

    @property
    def typical_ns(self) -> float:
        """The mean time of a batch, which determines throughput."""
        return sum(self.batch_ns) / max(1, len(self.batch_ns))

    @property
    def whole_ns(self) -> float:
        """A worker's time for a batch, hand-over included (S)."""
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
        """Share of the time in which a worker waits for something else than a CPU."""
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
    """The resources of one rank. None: unknown."""

    cpus: float
    """CPUs that this rank may count on, the training process's own included."""
    reason: str = ""
    """The source of that number, in words."""
    machine_cpus: int = 1
    ranks: int = 1
    room_bytes: int | None = None
    """Memory that could still be taken."""
    shm_bytes: int | None = None
    descriptors: int | None = None
    accelerator: str | None = None
    """Kind of the accelerator, if any. Pinning pays only with one."""
    copy_bytes_per_s: float | None = None
    """The speed of one core when it copies memory that is in no cache."""
    gil: bool = True
    start_method: str = "fork"
    """The start method that the loader chooses by itself."""
    shipment_bytes: int | None = None
    shipment_ns: int | None = None
    """The pickled size of the dataset for spawned workers, and the time of pickling."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Time of one training step of ``burst`` batches, without waiting for data."""

    step_ns: int
    """0: unknown, so the loop is assumed to be as fast as it can."""
    cpu_ns: int = 0
    """CPU time of the step on this machine."""
    source: str = "none"
    """ "step-ms", "step", "record", "none"."""
    burst: int = 1
    """Batches that the loop takes at once (gradient accumulation)."""

    @property
    def batch_ns(self) -> float:
        """The step's time for one batch (T): the interval if data took no time."""
        return self.step_ns / max(1, self.burst)
