"""Runs workers in actors of a Ray cluster, beside ordinary worker processes of this machine.

    worker 0 … local - 1    processes of this machine (``executors/process``)
    worker local …          Ray actors, served by one thread of this process (``bridge``)

Both kinds take tasks from the same channel, so an idle worker takes the oldest task, wherever it runs.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
import uuid
from typing import Any

from stoker._pickling.spec_pickle import SpecPickle
from stoker._runtime.executors.base import Arrival, IterationStart, WorkerActivity
from stoker._runtime.executors.interrupt_delay import interrupts_let_through
from stoker._runtime.executors.process.executor import ProcessExecutor
from stoker._runtime.executors.process.worker_handle import WorkerHandle
from stoker._runtime.executors.ray import cluster, dataset_objects, near_host
from stoker._runtime.executors.ray.api import RayApi
from stoker._runtime.executors.ray.bridge import Bridge
from stoker._runtime.executors.ray.options import Ray
from stoker._runtime.executors.ray.remotes import Limits, Loss, Wiring, pack_boot
from stoker._runtime.protocol import log_forwarding, status_page
from stoker._runtime.protocol.worker_spec import WorkerSpec
from stoker._runtime.transport.arena import Arena

_LOOK_S = 0.02
"""How often to look whether all workers have started, if they are to be waited for."""

_ANSWER_S = 2.0
"""How long a relay may take to say what its worker does."""

_STACK_S = 10.0
"""The same for a stack: the relay imports what reads it, with the first."""


class RemoteProcess:
    """A remote worker with the attributes of a process. Its pid is another host's, so it has none here."""

    pid: int | None = None
    exitcode: int | None = None

    def __init__(self, bridge: Bridge, worker: int) -> None:
        self._bridge = bridge
        self._worker = worker
        self.gone = threading.Event()

    def is_alive(self) -> bool:
        return not self.gone.is_set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until its end was reported, or its pool is closed."""
        self.gone.wait(timeout)

    def terminate(self) -> None:
        self._bridge.kill_worker(self._worker)


class RayExecutor(ProcessExecutor):
    """The process executor, with further workers on other hosts. Same contract, same thread."""

    def __init__(
        self,
        spec: WorkerSpec,
        context: Any,
        arena: Arena,
        *,
        bound: bool,
        packed_spec: SpecPickle | None = None,
        options: Ray | None = None,
        grows: bool = False,
    ) -> None:
        self._grows = grows
        self._options = options or Ray()
        self._pool = uuid.uuid4().hex
        self._near_host: near_host.NearHost | None = None
        self._near_spec: SpecPickle | None = None
        with contextlib.ExitStack() as undo:
            with interrupts_let_through():
                self._ray = ray = cluster.connect(self._options)
                api = RayApi(ray, self._options, self._pool)
                undo.callback(api.abandon)
                self._near_worker = not bound and near_host.has_free_cpu(ray, self._options)
                api.prepare(
                    range(self._options.local, spec.num_workers)
                )  # they start while the dataset is packed
                self._near_spec = SpecPickle(spec)
                undo.callback(self._near_spec.close)
                api.hand_over(dataset_objects.put(ray, self._near_spec))
            super().__init__(spec, context, arena, bound=bound, packed_spec=packed_spec)
            undo.pop_all()
        wiring = Wiring(
            arena.fd, arena.stride, self._results.write_fd, self._note_fd, self._status, self._channel_fd
        )
        self._losses: dict[int, Loss] = {}
        self._error: BaseException | None = None
        limits = Limits(
            head=cluster.head_address(ray), wait_s=self._options.wait_s if not self._options.local else None
        )
        self._api = api
        self._bridge = Bridge(api, wiring, limits, bound=bound)
        self._poll.register(self._bridge.wake_fd, select.EPOLLIN)

    def begin(self, start: IterationStart) -> None:
        super().begin(start)
        self._bridge.set_epoch(start.epoch)

    def spawn_all(self, count: int) -> None:
        for worker in range(count):
            self.spawn(worker)
        if self._options.wait_for_all:
            self._wait_for_all(count - self._options.local)

    def _wait_for_all(self, wanted: int) -> None:
        """Return when all actors work. One that is lost meanwhile ends the wait: it is explained, or replaced, as always."""
        wait_s = self._options.wait_s
        until_s = time.monotonic() + wait_s
        with interrupts_let_through():
            while (started := self._bridge.started) < wanted and not self._bridge.losses:
                if time.monotonic() > until_s:
                    raise self._api.missing_workers(started, wanted, wait_s)
                time.sleep(_LOOK_S)

    def spawn(self, worker: int) -> None:
        if worker < self._options.local:
            super().spawn(worker)
            return
        self._start_near_host()
        if worker > status_page.MAX_WORKERS - 1:
            raise ValueError(f"num_workers may be at most {status_page.MAX_WORKERS}")
        self._status.clear(worker)
        self._channel(worker)
        process = RemoteProcess(self._bridge, worker)
        self._all[worker] = process
        self._known.add(worker)
        self._handles[worker] = WorkerHandle(process, -1, -1)
        boot = pack_boot(
            worker=worker,
            base_seed=self._start.seed,
            levels=log_forwarding.logger_levels(),
            resume=self._resumes.get(worker),
            relayed=True,
        )
        near = self._near_worker and self._near_host is not None
        self._near_worker = False
        self._bridge.spawn(worker, boot, process.gone, near=near)
        self._ask_for_room()

    def activities(self) -> list[WorkerActivity]:
        seen = []
        for each in super().activities():
            looked = (
                self._bridge.ask(each.worker, "look", _ANSWER_S) if self._is_remote(each.worker) else None
            )
            if looked is not None and looked.phase != status_page.IDLE:
                collating = looked.phase == status_page.COLLATING
                each = each._replace(row=looked.row, since_ns=looked.since_ns, collating=collating)
            seen.append(each)
        return seen

    def stack(self, worker: int) -> list[str]:
        if not self._is_remote(worker):
            return super().stack(worker)
        found = self._bridge.ask(worker, "stack", _STACK_S)
        return found if found is not None else ["(its node does not answer)"]

    def dismiss(self, epoch: int) -> None:
        super().dismiss(epoch)
        for worker, handle in self._handles.items():
            claim = self._status.claim(worker) if self._is_remote(worker) else None
            if claim is not None and claim[0] != epoch:
                handle.leaving = True
                self._bridge.kill_worker(worker)

    # Inside

    def _start_near_host(self) -> None:
        """With the first remote worker, fork the host of this node. The caller says that the fork is ours."""
        packed, self._near_spec = self._near_spec, None
        if packed is not None:
            try:
                self._near_host = near_host.start(self._ray, self._options, self._context, self._pool, packed)
            finally:
                packed.close()

    def _close_near_host(self) -> None:
        if self._near_host is not None:
            self._near_host.close()
        if self._near_spec is not None:
            self._near_spec.close()

    def _ask_for_room(self) -> None:
        """Tell Ray's autoscaler how many workers a loader that scales itself has now."""
        if self._grows:
            self._bridge.ask_for_room(sum(self._is_remote(worker) for worker in self._handles))

    def _is_remote(self, worker: int) -> bool:
        return worker >= self._options.local

    def _channel_fd(self, worker: int) -> int:
        return self._channel(worker).worker_fd

    def _collect(self, found: list[tuple[int, int]]) -> list[Arrival]:
        arrivals = super()._collect(found)
        losses = self._bridge.take_losses() if self._error is None else []
        for loss in losses:
            if loss.error is not None:
                self._error = loss.error
            if loss.worker in self._handles:
                self._losses[loss.worker] = loss
                arrivals += self._lost(loss.worker)
                if loss.worker not in self._all:
                    self._ask_for_room()
        if self._error is not None:
            raise self._error
        return arrivals

    def _describe(self, worker: int, handle: WorkerHandle) -> tuple[str, bool, int, str, bool]:
        loss = self._losses.pop(worker, None)
        if loss is None:
            return super()._describe(worker, handle)
        handle.process.exitcode = 1
        handle.by_host = loss.by_host
        return loss.reason, loss.started, loss.row, loss.details, loss.collating

    def _end_processes(self) -> None:
        self._bridge.close()  # first: it uses the channels and the arena
        self._close_near_host()
        super()._end_processes()

    def _kill_all(self) -> None:
        self._bridge.close()
        self._close_near_host()
        super()._kill_all()

    def close(self) -> None:
        if os.getpid() == self._owner_pid:
            super().close()
