"""The input and output of the autoscale policy: an observation of some steps, its bounds, and an action."""

from __future__ import annotations

from dataclasses import dataclass, replace

SAMPLED = 256
"""The most batch times in an observation: the last ones."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Some consecutive steps, seen from the training loop. Times are in nanoseconds; None means unknown.

    A step is the interval from one batch's hand-over to the next one's. ``wall_ns`` is their sum, and ``wait_ns`` the time in
    ``next()``. ``cpu_ns``, ``off_ns`` and ``runq_ns`` are a worker's mean time for one whole batch, all parts of a split one
    together.
    """

    steps: int
    wall_ns: int
    wait_ns: int
    workers: int
    """Workers that were up during the whole observation. 0: the training process makes batches itself."""
    window: int
    """The most batches that may be made and not taken."""
    busy: float | None = None
    """Share of the workers' time between receiving a task and having sent its result (u)."""
    waits: int = 0
    """Steps whose batch was not ready when the loop asked for it."""
    blocked: int = 0
    """Of these, steps in which a later batch was ready meanwhile: the head of the line held it up."""
    cpu_ns: float = 0.0
    off_ns: float = 0.0
    runq_ns: float = 0.0
    batch_ns: tuple[int, ...] = ()
    """A worker's time for each of the recent batches, the run queue included."""
    batch_bytes: int = 0
    rows: int = 1
    """Samples in a batch."""
    split: bool = False
    """Whether idle workers make batches in parts."""
    own_cpu_ns: int | None = None
    """CPU time of the training process, all threads."""
    room_bytes: int | None = None
    """Memory that this rank could still take."""
    worker_bytes: int | None = None
    """Private memory of a worker."""
    throttled: float = 0.0
    """Share of the cgroup's periods in which it was throttled."""
    foreign_cpus: float | None = None
    """CPUs that other processes kept busy, other ranks of the job included."""
    gap_ns: int = 0
    """The longest step without its wait: a validation, a checkpoint, a breakpoint."""
    warm_up: bool = False
    """Workers started or left, or an epoch began, so that the values mean nothing."""

    @property
    def interval_ns(self) -> float:
        """The mean time of a step with its wait. The policy tries to make it short."""
        return self.wall_ns / max(1, self.steps)

    @property
    def step_ns(self) -> float:
        """The mean time of a step without waiting for data: the demand."""
        return max(0, self.wall_ns - self.wait_ns) / max(1, self.steps)

    @property
    def stall(self) -> float:
        """Share of the time in which the training loop waits for data (s)."""
        return self.wait_ns / self.wall_ns if self.wall_ns > 0 else 0.0

    @property
    def making_ns(self) -> float:
        """A worker's time for one batch without the run queue (S). Without CPU readings, from the batch times."""
        own_ns = self.cpu_ns + self.off_ns
        if own_ns or not self.batch_ns:
            return own_ns
        return sum(self.batch_ns) / len(self.batch_ns)

    @property
    def off_share(self) -> float:
        """Share of a batch's time off the CPU."""
        own_ns = self.cpu_ns + self.off_ns
        return self.off_ns / own_ns if own_ns > 0 else 0.0

    def joined(self, later: Observation) -> Observation:
        """This observation and the next one as one. Values that are no sums come from the later one."""
        steps = self.steps + later.steps
        earlier_share = self.steps / steps if steps else 0.0

        def mean(name: str) -> float:
            mine, its = float(getattr(self, name)), float(getattr(later, name))
            return mine * earlier_share + its * (1 - earlier_share)

        def known(name: str) -> float | None:
            if getattr(self, name) is None or getattr(later, name) is None:
                return None
            return mean(name)

        own = None
        if self.own_cpu_ns is not None and later.own_cpu_ns is not None:
            own = self.own_cpu_ns + later.own_cpu_ns
        return replace(
            later,
            steps=steps,
            wall_ns=self.wall_ns + later.wall_ns,
            wait_ns=self.wait_ns + later.wait_ns,
            busy=known("busy"),
            waits=self.waits + later.waits,
            blocked=self.blocked + later.blocked,
            cpu_ns=mean("cpu_ns"),
            off_ns=mean("off_ns"),
            runq_ns=mean("runq_ns"),
            batch_ns=(*self.batch_ns, *later.batch_ns)[-SAMPLED:],
            own_cpu_ns=own,
            throttled=mean("throttled"),
            foreign_cpus=known("foreign_cpus"),
            gap_ns=max(self.gap_ns, later.gap_ns),
            warm_up=self.warm_up or later.warm_up,
        )


@dataclass(frozen=True, slots=True)
class AutoscaleBounds:
    """The limits of the policy's choice: at most ``most`` workers, for a ``reason``. The controller updates them."""

    most: int
    reason: str
    """The reason, in words that follow "at most N workers: "."""
    least: int = 1
    cpus: float = 1.0
    """CPUs that this rank may count on, the training process's own included."""
    cpus_reason: str = ""
    window_most: int = 0
    """The largest window, in batches; 0 if the policy may not change it."""
    may_split: bool = False
    """Whether the policy may turn on splitting."""


@dataclass(frozen=True, slots=True)
class ObservationPeriod:
    """The minimum length of the next observation: it must reach both."""

    seconds: float
    steps: int


@dataclass(frozen=True, slots=True)
class AutoscaleAction:
    """The policy's decision. ``hold`` changes nothing and says why, although the loop waits."""

    kind: str
    """ "grow", "shrink", "deepen", "split", "revert", "hold"."""
    workers: int
    window: int
    reason: str
    """One line with the numbers behind the decision."""
    split: bool = False
    code: str = ""
    """The reason as one word: "demand", "cpus", "memory", "most", "tried", "blocked", "idle", "throttled"…"""
