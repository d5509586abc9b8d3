"""Defines the Executor protocol: the seam between the engine and the code that makes batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from stoker._runtime.executors.interrupt_guard import InterruptGuard
from stoker._runtime.protocol.worker_spec import Resume
from stoker._runtime.scheduler.messages import Event
from stoker._runtime.scheduler.types import Task

HEAP = 1
"""Receipt flag: the result is the object in ``receipt.heap``, not bytes in a slot."""


class Arrival(NamedTuple):
    """An event and the epoch it belongs to; epoch -1 concerns the pool, whatever iteration is running."""

    epoch: int
    event: Event


class WorkerActivity(NamedTuple):
    """A worker at work: which row of which part of which ticket (-1: not a certain one), and for how long."""

    worker: int
    pid: int
    epoch: int
    seq: int
    part: int
    row: int
    since_ns: int
    collating: bool = False


class WorkerMemory(NamedTuple):
    """What a worker process occupies (``_metrics.processes``), its private bytes after its first batches, how many threads it
    has, and their CPU time since its first task; None: not known."""

    worker: int
    pid: int
    pss_bytes: int | None
    private_bytes: int | None
    baseline_bytes: int | None
    threads: int | None = None
    cpu_ns: int | None = None


@dataclass(frozen=True, slots=True)
class IterationStart:
    """What is new with an iteration: its epoch number, the base seed, the seed shared by DataPipes.

    ``revision`` announces what changed on the dataset to workers that have a copy of it; 0: nothing ever did. ``restore`` makes the
    dataset what it was at the beginning of the iteration, in a worker that inherits it later. ``run`` is the inode of the loader's
    run page, for tools that look at a status page; 0: there is none.
    """

    epoch: int
    seed: int
    pipe_seed: int = 0
    revision: int = 0
    restore: Callable[[], None] | None = None
    run: int = 0


class Executor(Protocol):
    """Called by the engine, on the thread that iterates.

    Contract:

    - ``submit`` never blocks and never fails because a worker vanished; the loss is reported by ``wait``.
    - ``wait`` is the only place that blocks. It covers results, wake-ups and deaths in one call and returns at least one arrival,
      unless ``timeout_s`` passed first. With 0 it only collects what is there.
    - ``WorkerLost`` comes exactly once per worker, after all of its results.
    - ``withdraw`` takes back tasks that no worker has seen; each comes back once, as a Withdrawn arrival or never.
    - ``close`` ends all workers within one deadline and is idempotent.
    """

    shared_memory: bool
    """Whether tasks carry slots. False for executors whose results travel as objects or bytes."""

    eager: bool
    """Whether tasks make progress without ``wait`` being called. False means: do not plan ahead."""

    guard: InterruptGuard
    """Held by ``wait`` while an exception from outside would lose arrivals, and released by the caller that has handled them."""

    @property
    def workers(self) -> Sequence[Any]:
        """Handles with pid, is_alive, join, exitcode, terminate; empty where there are none."""
        ...

    def begin(self, start: IterationStart) -> None: ...

    def agree(self, layout: int) -> None:
        """Announce, once, the layout whose rows go to their places in the slot of a split ticket. Nothing without slots."""
        ...

    def spawn(self, worker: int) -> None: ...

    def submit(self, task: Task) -> None: ...

    def wait(self, timeout_s: float | None) -> list[Arrival]: ...

    def withdraw(self) -> list[Arrival]: ...

    def activities(self) -> list[WorkerActivity]:
        """What every busy worker is on, for messages about waits. Empty where it cannot be known."""
        ...

    def stack(self, worker: int) -> list[str]:
        """The Python stack of a worker, innermost frame first, or why there is none. For messages: it may take a second."""
        ...

    def dismiss(self, epoch: int) -> None:
        """End workers that are still on work of another epoch than this one. For waits that have lasted long enough."""
        ...

    def starting(self) -> list[tuple[int, int]]:
        """(worker, pid) of those that have not come up yet."""
        ...

    def remember(self, worker: int, resume: Resume) -> None:
        """Where a worker's stream stands after the batch delivered last: its replacement, if it needs one, begins there."""
        ...

    def resume_at(self, worker: int, resume: Resume) -> None:
        """Where a worker's stream is to begin. Called after ``begin`` and before that worker is spawned."""
        ...

    def trim(self) -> list[Arrival]:
        """Ask idle workers to let go of caches, without waiting for them; results that have come in meanwhile, but no losses.

        Called between iterations, perhaps on another thread than the one that iterates, never at the same time.
        """
        ...

    def memory(self, *, sizes: bool = True) -> list[WorkerMemory]:
        """What each worker process occupies; empty where workers are no processes of this machine. Any thread.

        Without ``sizes`` only what the status page has, which costs nothing.
        """
        ...

    def retire(self, worker: int | None) -> None: ...

    def close(self) -> None: ...
