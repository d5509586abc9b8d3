"""Defines the Executor protocol: the seam between the engine and the code that makes batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeGuard

from stoker._runtime.executors.interrupt_guard import InterruptGuard
from stoker._runtime.protocol.worker_spec import Resume
from stoker._runtime.scheduler.messages import Event
from stoker._runtime.scheduler.types import Task

HEAP = 1
"""Receipt flag: the result is the object in ``receipt.heap``, not bytes in a slot."""


class Arrival(NamedTuple):
    """An event and its epoch; epoch -1 concerns the pool, whichever iteration is running."""

    epoch: int
    event: Event


class WorkerActivity(NamedTuple):
    """What a busy worker does: the row (-1: unknown), part and ticket, and for how long."""

    worker: int
    pid: int
    epoch: int
    seq: int
    part: int
    row: int
    since_ns: int
    collating: bool = False


class WorkerMemory(NamedTuple):
    """The memory of a worker process (``_host.process_memory``), its private bytes after the first batches, its threads, and their
    CPU time since its first task. None: not known.
    """

    worker: int
    pid: int
    pss_bytes: int | None
    private_bytes: int | None
    baseline_bytes: int | None
    threads: int | None = None
    cpu_ns: int | None = None


@dataclass(frozen=True, slots=True)
class IterationStart:
    """What changes with an iteration: its epoch number, the base seed, the seed shared by DataPipes.

    ``revision`` announces changes of the dataset to workers that have a copy; 0: there were none. ``restore`` sets the dataset
    back to the start of the iteration, in a worker that inherits it later. ``run`` is the inode of the loader's run page, for
    tools that read the status page; 0: there is none.
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
    """Held by ``wait`` while an interrupt would lose arrivals; released by the caller that has handled them."""

    @property
    def workers(self) -> Sequence[Any]:
        """Handles with pid, is_alive, join, exitcode, terminate; empty where there are none."""
        ...

    def begin(self, start: IterationStart) -> None:
        """Start an iteration. Results of earlier epochs may still arrive."""
        ...

    def agree(self, layout: int) -> None:
        """Announce, once, the layout whose rows go to fixed places in a shared slot. Does nothing without slots."""
        ...

    def spawn(self, worker: int) -> None:
        """Start a worker. Raises OSError when the system has no room for it."""
        ...

    def submit(self, task: Task) -> None:
        """Give a task to its worker, or to any worker if it names none."""
        ...

    def wait(self, timeout_s: float | None) -> list[Arrival]:
        """Wait for arrivals, without end if ``timeout_s`` is None."""
        ...

    def withdraw(self) -> list[Arrival]:
        """Take back all tasks that no worker has seen."""
        ...

    def activities(self) -> list[WorkerActivity]:
        """Return what every busy worker does, for messages about waits. Empty where that is unknown."""
        ...

    def stack(self, worker: int) -> list[str]:
        """Return the Python stack of a worker, innermost frame first, or the reason why there is none. May take a second."""
        ...

    def dismiss(self, epoch: int) -> None:
        """End workers that still work on another epoch. Called after a long wait."""
        ...

    def starting(self) -> list[tuple[int, int]]:
        """Return (worker, pid) of workers that have not reported yet."""
        ...

    def remember(self, worker: int, resume: Resume) -> None:
        """Note the state of a worker's stream after the last delivered batch; a replacement starts there."""
        ...

    def resume_at(self, worker: int, resume: Resume) -> None:
        """Set where a worker's stream starts. Called after ``begin`` and before that worker is spawned."""
        ...

    def trim(self) -> list[Arrival]:
        """Ask idle workers to release caches, without waiting. Return results that arrived meanwhile, but no losses.

        Called between iterations, perhaps on another thread than the one that iterates, never at the same time.
        """
        ...

    def memory(self, *, sizes: bool = True) -> list[WorkerMemory]:
        """Return the memory of each worker process; empty where workers are no processes of this machine. Any thread.

        Without ``sizes``, return only what the status page has, which costs nothing.
        """
        ...

    def retire(self, worker: int | None) -> None:
        """Ask this worker to leave after its task; with None, any worker."""
        ...

    def close(self) -> None:
        """End all workers and close all descriptors."""


class LeavesBehind(Protocol):
    """An executor whose workers can leave while nobody waits for them. ``close`` may then come on another thread."""

    def hang_up(self) -> None:
        """Tell all workers to leave, without waiting. Only when none has a task. Idempotent; ``close`` waits for their end."""
        ...


class Wakes(Protocol):
    """An executor whose ``wait`` another thread can end."""

    def wake(self) -> None:
        """Let ``wait`` return, now and from now on, even without arrivals. Any thread; ``close`` comes later."""
        ...


class StartsMany(Protocol):
    """An executor that starts the workers of a pool together, faster than one by one."""

    def spawn_all(self, count: int) -> None:
        """Start the workers 0 to ``count - 1``, as ``spawn`` does. Some may come up after this has returned."""
        ...


class CountsCacheUse(Protocol):
    """An executor that knows what sample caches did in its workers. One on other hosts may not know."""

    def cache_counts(self) -> tuple[int, ...]:
        """Return sums over all workers so far, in the order of ``status_page.CACHE_COUNTS``. Any thread; after ``close`` too."""
        ...


def counts_cache_use(executor: Executor) -> TypeGuard[CountsCacheUse]:
    """Whether it is a ``CountsCacheUse``."""
    return hasattr(executor, "cache_counts")


def leaves_behind(executor: Executor) -> TypeGuard[LeavesBehind]:
    """Whether it is a ``LeavesBehind``. A check against a protocol would take longer than a batch."""
    return hasattr(executor, "hang_up")


def wakes(executor: Executor) -> TypeGuard[Wakes]:
    """Whether it is a ``Wakes``."""
    return hasattr(executor, "wake")


def starts_many(executor: Executor) -> TypeGuard[StartsMany]:
    """Whether it is a ``StartsMany``."""
    return hasattr(executor, "spawn_all")
