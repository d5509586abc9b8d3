"""Connects the pool's channels with Ray: a thread of the trainer that takes tasks for remote workers and brings their results.

    task channel ──► bridge: an actor is idle ──► actor.make(task) ──► … ──► Ray's thread: done ──► inbox, wake-up descriptor
    arena, result pipe, status page ◄── bridge: one copy into the slot, then the header ◄──┘

For the engine, a remote worker looks like a process of this machine: it takes tasks from the same channel, its batches lie in the
arena, its headers come through the same pipe. So one wait of the trainer covers local and remote workers, and the trainer's thread
makes no Ray call. ``ray.wait`` can neither be interrupted nor be part of such a wait; a callback per reference can.

The bridge is the only writer of remote results. After it has reported a worker as lost, nothing of that worker is written any more.
"""

from __future__ import annotations

import contextlib
import logging
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from stoker._pickling.segment import read_at
from stoker._runtime.executors.ray.pool_channels import ResultWriter, TaskReader
from stoker._runtime.executors.ray.remotes import EventFd, Flight, Limits, Loss, Relief, Remote, Wiring
from stoker._runtime.executors.ray.watches import HeadWatch, LateTasks
from stoker._runtime.protocol import status_page, wire

_clock = time.monotonic_ns
_log = logging.getLogger("stoker")
_REVISION_LENGTH = 8

TICK_S = 0.5
"""How often to look for late tasks and for the head of the cluster."""

FEW_AFTER_S = 5.0
"""When to say that workers still wait for CPUs: actors of an earlier epoch may take a moment to end."""

MOST_FAILED_STARTS = 20
"""So many actors in a row that were lost before they were up are no accident of their nodes."""

JOIN_S = 10.0
"""How long the thread may take to end. It blocks only inside Ray's own calls."""


class Bridge:
    """Owner: a RayExecutor. The public methods are called by the executor; the others run on the thread.

    ``losses`` and ``wake_fd`` are how it reports: the executor's wait covers the descriptor.
    """

    def __init__(self, api: Any, wiring: Wiring, limits: Limits, *, bound: bool) -> None:
        self._api = api
        self._limits = limits
        self._wiring = wiring
        self._bound = bound
        self._control = wiring.page.control
        self._results = ResultWriter(wiring)
        self._remotes: dict[int, Remote] = {}
        self._idle: dict[int, None] = {}
        self._inbox: deque[tuple[Any, ...]] = deque()
        self._own_wake = EventFd()
        self._wake = EventFd()
        self.losses: deque[Loss] = deque()
        self._poll = select.epoll()
        self._poll.register(self._own_wake.fd, select.EPOLLIN)
        self._tasks = TaskReader(self._poll)
        self._hung_up: set[int] = set()
        self._next_look_ns = 0
        self._room = 0
        self._stopped = False
        self._head_watch = HeadWatch(limits.head)
        self._late = LateTasks()
        self._failed_starts = 0
        self._began_ns = 0
        self._spawned_ns = 0
        self._thread: threading.Thread | None = None
        self._head_thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._head_lost = False

    @property
    def wake_fd(self) -> int:
        """Readable when ``losses`` has something."""
        return self._wake.fd

    # Called by the executor

    @property
    def started(self) -> int:
        """How many actors work."""
        return sum(each.up and each.relief is None for each in list(self._remotes.values()))

    def spawn(self, worker: int, boot: bytes, gone: threading.Event, *, near: bool = False) -> None:
        """Start an actor for this worker. A header reports when it is up. ``gone`` is set when it is lost or closed.

        ``near``: something on this node stands in for it meanwhile.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stoker-ray", daemon=True)
            self._thread.start()
            self._head_thread = threading.Thread(target=self._watch_head, name="stoker-ray-head", daemon=True)
            self._head_thread.start()
        self._post(self._on_spawn, worker, boot, gone, near)

    def set_epoch(self, epoch: int) -> None:
        """Announce which epoch counts, to workers that are busy with another."""
        if self._thread is not None:
            self._post(self._on_epoch, epoch)

    def ask_for_room(self, workers: int) -> None:
        """Ask Ray's autoscaler for nodes for so many workers. Forgotten when the pool is closed."""
        if self._thread is not None:
            self._post(self._on_room, workers)

    def kill_worker(self, worker: int) -> None:
        """End the process of a remote worker, which hangs."""
        if self._thread is not None:
            self._post(self._on_kill, worker)

    def ask(self, worker: int, method: str, timeout_s: float) -> Any:
        """Call a method of a relay from the trainer's thread; None if it does not answer in time."""
        remote = self._remotes.get(worker)
        if remote is None or not remote.up or not self._api.is_connected():
            return None
        try:
            return self._api.get(getattr(remote.actor, method).remote(), timeout=timeout_s)
        except Exception:
            return None

    def take_losses(self) -> list[Loss]:
        """Return what was reported since the last call."""
        self._wake.clear()
        found = []
        while self.losses:
            found.append(self.losses.popleft())
        return found

    def close(self) -> None:
        """End all actors and the thread. Idempotent."""
        if self._thread is not None:
            self._closing.set()
            self._post(self._on_stop)
            self._thread.join(0.1 if self._head_lost else JOIN_S)
            self._thread = None
            if self._head_thread is not None:
                self._head_thread.join(JOIN_S)
                self._head_thread = None
        if not self._poll.closed:
            self._poll.close()
            self._own_wake.close()
            self._wake.close()
            self._control.release()

    # On Ray's threads

    def _post(self, *message: Any) -> None:
        self._inbox.append(message)
        self._own_wake.set()

    def _when_done(
        self, ref: Any, then: Callable[..., None], remote: Remote, *rest: Any, counts: bool = True
    ) -> None:
        """Have the result of a call put into the inbox. The worker is not lost before it is there, if it ``counts``."""
        remote.pending += counts

        def done(future: Any) -> None:
            error = future.exception()
            value = None if error is not None else future.result()
            self._post(then, remote, value, error, _clock(), *rest)

        ref.future().add_done_callback(done)

    # On the bridge's thread

    def _run(self) -> None:
        self._began_ns = self._spawned_ns = _clock()
        try:
            while not self._stopped:
                self._poll.poll(TICK_S)
                self._own_wake.clear()
                if not self._api.is_connected():
                    raise self._api.disconnected()
                while self._inbox:
                    then, *body = self._inbox.popleft()
                    then(*body)
                    del body  # it may hold memory of the object store
                if not self._stopped:
                    self._feed()
                    self._look_after()
        except BaseException as error:
            if not self._closing.is_set():
                if connected := self._api.is_connected():
                    _log.exception("the thread that talks to Ray ended")
                self._fail(error if connected else self._api.disconnected())
        finally:
            self._closing.set()
            for remote in self._remotes.values():
                self._kill(remote)
                remote.gone.set()
            self._api.abandon()
            self._on_room(0)
            self._tasks.close()

    def _look_after(self) -> None:
        """Try a late task again, and look whether the cluster is there."""
        now_ns = _clock()
        if now_ns < self._next_look_ns:
            return
        self._next_look_ns = now_ns + int(TICK_S * 1e9)
        if self._idle and not self._bound and not self._hung_up:
            for late, worker in zip(self._late.find(now_ns), list(self._idle), strict=False):
                self._dispatch(self._remotes[worker], late)
        if self._spawned_ns and now_ns - self._spawned_ns > FEW_AFTER_S * 1e9:
            self._spawned_ns = 0
            waiting = len(self._remotes) - self.started
            if waiting and (told := self._api.few_cpus(waiting, len(self._remotes))):
                _log.warning("%s", told)
        wait_s = self._limits.wait_s
        if wait_s is not None and self._began_ns and now_ns - self._began_ns > wait_s * 1e9:
            self._fail(self._api.no_worker(wait_s))

    def _watch_head(self) -> None:
        """Look for the head on a thread of its own: without it, calls of Ray on the bridge's thread do not return."""
        while not self._closing.wait(TICK_S):
            error = self._head_watch.lost(_clock())
            if error is not None:
                self._head_lost = True
                self._report(Loss(-1, error=error))
                return

    def _fail(self, error: BaseException) -> None:
        """The loader cannot go on."""
        self._report(Loss(-1, error=error))

    def _on_stop(self) -> None:
        self._stopped = True

    def _on_spawn(self, worker: int, boot: bytes, gone: threading.Event, near: bool) -> None:
        try:
            actor = self._api.actor(worker)
        except Exception as error:
            self._report(self._api.refusal(worker, error))
            gone.set()
            return
        remote = self._remotes[worker] = Remote(worker, actor, gone)
        start = (*self._api.start_arguments, boot, self._revision(remote))
        if near:
            remote.actor = self._api.near(worker)
            remote.relief = Relief(actor, remote.revision)
        self._when_done(remote.actor.start.remote(*start), self._on_started, remote)
        if near:
            self._when_done(actor.start.remote(*start), self._on_relief, remote, actor, counts=False)

    def _on_started(self, remote: Remote, value: Any, error: BaseException | None, now_ns: int) -> None:
        remote.pending -= 1
        if error is not None and remote.relief is not None and remote.ended is None:
            self._without_near(remote)
            return
        if error is not None:
            self._end(remote, error)
            return
        if (refusal := self._api.unfit(value)) is not None:
            self._fail(refusal)
            return
        remote.node, remote.host, remote.up = value.node, value.host, True
        if remote.relief is None:
            self._failed_starts = self._began_ns = 0
        self._when_done(remote.actor.watch.remote(), self._on_ended, remote, remote.actor)
        row = self._wiring.page.row(remote.worker)
        row[status_page.PID] = value.pid
        self._results.send(wire.ResultKind.UP, remote.worker)
        self._idle[remote.worker] = None

    def _on_relief(
        self, remote: Remote, value: Any, error: BaseException | None, now_ns: int, actor: Any
    ) -> None:
        """The actor for which something near stands in has started, or failed to."""
        relief = remote.relief
        if remote.ended is not None or self._remotes.get(remote.worker) is not remote:
            return  # it was ended with the worker
        if relief is None:  # nothing stands in any more
            remote.pending += 1
            self._on_started(remote, value, error, now_ns)
        elif error is not None:
            self._end(remote, error)
        elif (refusal := self._api.unfit(value)) is not None:
            self._fail(refusal)
        else:
            relief.started = value
            if remote.up and remote.flight is None:
                self._relieve(remote)

    def _relieve(self, remote: Remote) -> None:
        """Let the actor take over, between two tasks."""
        relief, remote.relief = remote.relief, None
        assert relief is not None
        self._end_actor(remote.actor)
        remote.actor, remote.revision = relief.actor, relief.revision
        remote.node, remote.host = relief.started.node, relief.started.host
        self._failed_starts = self._began_ns = 0
        self._wiring.page.row(remote.worker)[status_page.PID] = relief.started.pid
        self._when_done(remote.actor.watch.remote(), self._on_ended, remote, remote.actor)

    def _without_near(self, remote: Remote) -> None:
        """What should stand in could not start: wait for the actor, as without it."""
        relief, remote.relief = remote.relief, None
        assert relief is not None
        self._end_actor(remote.actor)
        remote.actor = relief.actor
        if relief.started is not None:
            remote.pending += 1
            self._on_started(remote, relief.started, None, _clock())

    def _on_ended(
        self, remote: Remote, value: Any, error: BaseException | None, now_ns: int, actor: Any
    ) -> None:
        """The watch is over: the process or the actor has ended. Its other calls return too, and then it is lost."""
        remote.pending -= 1
        if actor is remote.actor:
            self._end(remote, error if error is not None else value)
        else:  # another one has taken over
            self._lose_if_ended(remote)

    def _on_made(
        self, remote: Remote, value: Any, error: BaseException | None, now_ns: int, flight: Flight
    ) -> None:
        remote.pending -= 1
        remote.flight = None
        if len(flight.workers) > 1:
            self._next_look_ns = 0  # the next late task may be tried again
        flight.workers.discard(remote.worker)
        self._late.returned(flight, now_ns - remote.sent_ns)
        if error is None and value.header:
            if remote.relief is not None and remote.relief.started is not None and remote.ended is None:
                self._relieve(remote)
            if not remote.leaving and remote.ended is None:
                self._idle[remote.worker] = None
                self._feed()  # first the next task, then the copy
            self._deliver(remote, value, flight, now_ns)
            if remote.flight is None:
                self._wiring.page.row(remote.worker)[status_page.PHASE] = status_page.IDLE
        else:
            if value is not None:
                self._results.pass_notes(value.notes)
            if error is not None:
                self._end(remote, error)
        self._lose_if_ended(remote)

    def _on_epoch(self, epoch: int) -> None:
        for remote in self._remotes.values():
            if remote.flight is not None and remote.flight.task.epoch != epoch and remote.ended is None:
                remote.actor.set_epoch.remote(epoch)

    def _on_room(self, workers: int) -> None:
        if workers != self._room:
            self._room = workers
            self._api.ask_for_room(workers)

    def _on_kill(self, worker: int) -> None:
        remote = self._remotes.get(worker)
        if remote is not None and remote.up:
            remote.actor.kill_worker.remote()

    # Tasks

    def _feed(self) -> None:
        """Give tasks to idle workers, the one that has waited longest first."""
        idle, wanted = self._idle, set()
        for worker in list(idle) if self._bound else ():
            if not self._feed_one(worker):
                wanted.add(self._wiring.channel_of(worker))
        if not self._bound:
            while idle:
                worker = next(iter(idle))
                if not self._feed_one(worker):
                    wanted.add(self._wiring.channel_of(worker))
                    break
        wanted -= self._hung_up
        if wanted != self._tasks.listening:
            self._tasks.listen(wanted)

    def _feed_one(self, worker: int) -> bool:
        """Give a worker its next task. False if there is none. What is no longer wanted is only answered."""
        while worker in self._idle:
            fd = self._wiring.channel_of(worker)
            message = self._tasks.receive(fd)
            if not message:
                if message is not None:
                    self._hung_up.add(fd)  # the pool is closing
                return False
            self._take(self._remotes[worker], message)
        return True

    def _take(self, remote: Remote, message: bytes) -> None:
        task = wire.TaskHeader._make(wire.unpack_task(message))
        if task.kind == wire.TaskKind.LEAVE:
            remote.leaving = True
            del self._idle[remote.worker]
            self._results.send(wire.ResultKind.LEAVING, remote.worker)
            self._kill(remote)
            return
        if task.kind == wire.TaskKind.LOOK:
            return
        if task.epoch != self._control[status_page.EPOCH]:
            self._results.send(wire.ResultKind.SKIPPED, remote.worker, task)
            return
        payload = None
        if not task.flags & wire.INLINE:
            target = task.scratch if task.scratch != wire.NO_SLOT else task.slot
            payload = read_at(self._wiring.arena_fd, task.payload_bytes, target * self._wiring.stride)
        self._dispatch(remote, Flight(task, message, payload, _clock()))

    def _dispatch(self, remote: Remote, flight: Flight) -> None:
        task, now_ns = flight.task, _clock()
        del self._idle[remote.worker]
        remote.flight, remote.sent_ns = flight, now_ns
        flight.workers.add(remote.worker)
        self._late.sent(flight)
        row = self._wiring.page.row(remote.worker)
        status_page.begin_task(row, task.epoch, task.seq, task.attempt, task.part, now_ns)
        control = self._control
        ref = remote.actor.make.remote(
            flight.message,
            flight.payload,
            control[status_page.EPOCH],
            control[status_page.LAYOUT],
            self._revision(remote),
        )
        self._when_done(ref, self._on_made, remote, flight)

    def _revision(self, remote: Remote) -> tuple[int, bytes] | None:
        """Return the dataset's changes that this worker lacks (``dataset_sync``)."""
        while (word := self._control[status_page.REVISION]) != remote.revision:
            at = (word & 0xFFFFFFFF) * self._wiring.stride
            length = int.from_bytes(read_at(self._wiring.arena_fd, _REVISION_LENGTH, at), "little")
            payload = read_at(self._wiring.arena_fd, _REVISION_LENGTH + length, at)
            if self._control[status_page.REVISION] == word:
                remote.revision = word
                return word, payload
        return None

    # Results

    def _deliver(self, remote: Remote, made: Any, flight: Flight, now_ns: int) -> None:
        """Bring a result to its slots, unless another attempt was faster."""
        self._results.pass_notes(made.notes)
        if flight.done:
            return
        flight.done = True
        try:
            self._results.write(made, flight, remote.sent_ns or flight.sent_ns, now_ns)
        except OSError as error:
            self._fail(error)

    # Ends

    def _end(self, remote: Remote, how: Any) -> None:
        if remote.ended is None:
            remote.ended = how
            self._idle.pop(remote.worker, None)
            self._kill(remote)
        self._lose_if_ended(remote)

    def _kill(self, remote: Remote) -> None:
        self._end_actor(remote.actor)
        if remote.relief is not None:
            self._end_actor(remote.relief.actor)

    def _end_actor(self, actor: Any) -> None:
        with contextlib.suppress(Exception):
            self._api.kill(actor)

    def _lose_if_ended(self, remote: Remote) -> None:
        """Report a worker that has ended, once, after all of its calls have returned."""
        if remote.ended is None or remote.pending or self._remotes.get(remote.worker) is not remote:
            return
        del self._remotes[remote.worker]
        how = remote.ended
        if isinstance(how, BaseException):
            loss = self._api.explain(remote, how)
            if not remote.up:
                self._failed_starts += 1
                if self._failed_starts > MOST_FAILED_STARTS:
                    loss = loss._replace(by_host=False)
            self._report(loss)
        else:
            where = f"\n  it ran on node {remote.host}"
            self._report(
                Loss(remote.worker, how.reason, how.started, how.row, where + how.details, how.collating)
            )

        remote.gone.set()

    def _report(self, loss: Loss) -> None:
        """Tell the executor. An error ends the loader: leave nothing running, unless nothing answers any more."""
        self._stopped = self._stopped or (loss.error is not None and not self._head_lost)
        self.losses.append(loss)
        self._wake.set()
