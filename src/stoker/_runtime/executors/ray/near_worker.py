"""Stands in for the first actor of a pool until that has started: a relay in the trainer's process, over a worker of the near host.

    bridge ── start, make, watch ──► NearActor, as it calls an actor ──► NearRelay ──► worker forked from the near host

An actor takes a second to start, because Ray starts a process for it. The worker here makes the first batches meanwhile. It is
used only where Ray has a free CPU on the trainer's own node, so that the actor would run there as well.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from typing import Any

import numpy as np

from stoker._runtime.executors.ray.relay import Relay, RelayedBatch
from stoker._runtime.protocol import parent_descriptors

_ENDED_S = 5.0
"""How long calls may take to return when their worker was killed."""


class NearRelay(Relay):
    """A relay that ends without its process."""

    def _fork(self, boot: bytes) -> None:
        super()._fork(boot)
        parent_descriptors.keep_private(self._lifeline_fd)

    def make(
        self,
        message: bytes,
        payload: bytes | None,
        epoch: int,
        layout: int,
        revision: tuple[int, bytes] | None,
    ) -> RelayedBatch:
        """As a relay's; the arrays are copies, because the next task may be in their slots before the bridge has read them."""
        made: RelayedBatch = super().make(message, payload, epoch, layout, revision)
        return made._replace(arrays=[np.array(each) for each in made.arrays])

    def end_worker(self) -> None:
        """Kill the worker: calls in progress return. Idempotent."""
        fd, self._lifeline_fd = self._lifeline_fd, -1
        if fd >= 0:
            parent_descriptors.close_private(fd)

    def close(self) -> None:
        """Close what it holds. No call is in progress."""
        self._row.release()
        self._control.release()
        self._page.close()
        self._slots.close()
        for held in (self._notes, self._note_fd, self._line):
            if held is not None:
                held.close()
        for fd in (self._pidfd, self._task_fd, self._result_fd):
            if fd >= 0:
                os.close(fd)


class NearActor:
    """Has the methods of an actor handle, as far as the bridge uses them. Used on the bridge's thread; ``join`` on any."""

    def __init__(self, worker: int) -> None:
        self._relay = NearRelay(worker)
        self._calls: list[threading.Thread] = []
        self._closer: threading.Thread | None = None
        for name in ("start", "make", "watch", "look", "stack", "set_epoch", "kill_worker"):
            setattr(self, name, _Method(self, getattr(self._relay, name)))

    def call(self, method: Any, arguments: tuple[Any, ...]) -> NearCall:
        """Make a call on a thread of its own."""
        made = NearCall()
        thread = threading.Thread(
            target=made.run, args=(method, arguments), name="stoker-near-call", daemon=True
        )
        self._calls = [each for each in self._calls if each.is_alive()]
        if self._closer is None:
            self._calls.append(thread)
            thread.start()
        else:
            made.done.set_exception(RuntimeError("the worker has been ended"))
        return made

    def kill(self) -> None:
        """End the worker, and close everything once the calls have returned. Returns at once. Idempotent."""
        if self._closer is None:
            self._relay.end_worker()
            self._closer = threading.Thread(target=self._close, name="stoker-near-close", daemon=True)
            self._closer.start()

    def join(self) -> None:
        """Wait until everything is closed."""
        if self._closer is not None:
            self._closer.join(_ENDED_S)

    def _close(self) -> None:
        for call in self._calls:
            call.join(_ENDED_S)
        if not any(call.is_alive() for call in self._calls):
            self._relay.end_worker()  # it may have been forked meanwhile
            self._relay.close()


class NearCall:
    """What a call returns: Ray's reference, as far as the bridge uses it."""

    def __init__(self) -> None:
        self.done: Future[Any] = Future()

    def future(self) -> Future[Any]:
        return self.done

    def run(self, method: Any, arguments: tuple[Any, ...]) -> None:
        """On the call's thread."""
        try:
            value = method(*arguments)
        except BaseException as error:
            self.done.set_exception(error)
        else:
            self.done.set_result(value)


class _Method:
    def __init__(self, actor: NearActor, method: Any) -> None:
        self._actor, self._method = actor, method

    def remote(self, *arguments: Any) -> NearCall:
        return self._actor.call(self._method, arguments)
