"""A double of ``RayApi``: actors without Ray, whose calls end when a test says so, or on a thread of their own.

Batches are made in the test's process, by the same encoder that workers use, so a real loader can run on it.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import torch

from stoker._runtime.executors.ray.api import RayApi
from stoker._runtime.executors.ray.relay import RelayedBatch, Started
from stoker._runtime.executors.ray.remotes import Loss, Remote
from stoker._runtime.protocol import wire
from stoker._runtime.transport.writer import ArenaWriter
from stoker.errors import ClusterError

_STRIDE = 1 << 24


class FakeCall:
    """What a remote call returns: Ray's reference, as far as the bridge uses it."""

    def __init__(self) -> None:
        self.done: Future[Any] = Future()

    def future(self) -> Future[Any]:
        return self.done


class _Method:
    def __init__(self, call: Callable[..., FakeCall]) -> None:
        self.remote = call


class FakeActor:
    """One worker. ``watched`` ends with it."""

    def __init__(self, api: FakeApi, worker: int) -> None:
        self.worker = worker
        self.watched = FakeCall()
        self.started = api.answered(Started(1000 + worker, "node", "host", "")) if api.starts else FakeCall()
        self.start = _Method(lambda *_: self.started)
        self.watch = _Method(lambda: self.watched)
        self.make = _Method(lambda *task: api.make(self, *task))
        self.set_epoch = _Method(lambda epoch: FakeCall())
        self.kill_worker = _Method(FakeCall)


class FakeApi:
    """``calls`` holds the tasks that actors have; with ``prompt``, a thread makes them one after the other.

    It keeps ``hold`` calls in progress, and loses the actor of the first batch ``losses`` times.
    """

    start_arguments: tuple[Any, ...] = ()
    connected = True
    starts = True
    """Whether actors start at once. What stands in for one does."""

    def __init__(self, *, prompt: bool = False, hold: int = 0, losses: int = 0) -> None:
        self.calls: deque[tuple[FakeActor, FakeCall, wire.TaskHeader, bytes]] = deque()
        self.actors: dict[int, FakeActor] = {}
        self.killed: list[int] = []
        self.nears: list[FakeActor] = []
        self.near_ended = threading.Event()
        self.room: list[int] = []
        self._made: dict[bytes, tuple[Any, tuple[int, int, int]]] = {}
        self._arrived = threading.Event()
        self._stopped = False
        self._thread = (
            threading.Thread(target=self._work, args=(hold, losses), daemon=True) if prompt else None
        )
        if self._thread is not None:
            self._thread.start()

    refused = staticmethod(RayApi.refused)
    refusal = RayApi.refusal

    def is_connected(self) -> bool:
        return self.connected

    disconnected = staticmethod(RayApi.disconnected)

    def prepare(self, workers: Any) -> None: ...

    def hand_over(self, spec: list[Any]) -> None: ...

    def abandon(self) -> None: ...

    def actor(self, worker: int) -> FakeActor:
        actor = self.actors[worker] = FakeActor(self, worker)
        return actor

    def near(self, worker: int) -> FakeActor:
        actor = FakeActor(self, worker)
        if not actor.started.done.done():
            actor.started = self.answered(Started(worker, "here", "host", ""))
        self.nears.append(actor)
        return actor

    def kill(self, actor: FakeActor) -> None:
        if actor in self.nears:
            self.near_ended.set()
        else:
            self.killed.append(actor.worker)

    def ask_for_room(self, workers: int) -> None:
        self.room.append(workers)

    def unfit(self, started: Any) -> None:
        return None

    def few_cpus(self, waiting: int, workers: int) -> str:
        return ""

    def no_worker(self, waited_s: float) -> None:
        return None

    def missing_workers(self, started: int, workers: int, waited_s: float) -> Exception:
        return ClusterError(f"{started} of {workers}")

    def explain(self, remote: Remote, error: BaseException) -> Loss:
        return Loss(remote.worker, f"lost: {error}", by_host=True)

    def answered(self, value: Any) -> FakeCall:
        call = FakeCall()
        call.done.set_result(value)
        return call

    def make(self, actor: FakeActor, message: bytes, payload: Any, *rest: Any) -> FakeCall:
        call = FakeCall()
        task = wire.TaskHeader._make(wire.unpack_task(message))
        self.calls.append((actor, call, task, message[wire.TASK.size :]))
        self._arrived.set()
        return call

    def finish(self, place: int = 0) -> FakeActor:
        """End one call, with the batch ``[indices]``."""
        self.calls.rotate(-place)
        actor, call, task, indices = self.calls.popleft()
        self.calls.rotate(place)
        array, end = self._batch(indices)
        header = wire.ResultHeader(
            wire.VERSION, wire.ResultKind.READY, 0, actor.worker, task.epoch, task.seq, task.attempt, task.part,
            task.slot, task.slot_generation, task.scratch, task.scratch_generation, *end, 0,
            task.sent_ns, 5_000, 6_000, 7_000, 8_000, 0, 0, 0, -1, 0,
        )  # fmt: skip
        call.done.set_result(RelayedBatch(wire.pack_result(*header), [(0, 0)], [array], []))
        return actor

    def lose(self, text: str) -> None:
        """Lose the actor of the oldest call: everything it was asked for fails, in any order."""
        actor, call, _, _ = self.calls.popleft()
        actor.watched.done.set_exception(ConnectionError(text))
        call.done.set_exception(ConnectionError(text))

    def stop(self) -> None:
        self.actors.clear()  # their calls hold the bridge, and so the loader if an error ended it
        self.nears.clear()
        if self._thread is not None:
            self._stopped = True
            self._thread.join()

    def _work(self, hold: int, losses: int) -> None:
        """Finish the oldest call whenever more than ``hold`` are in progress, or nothing new comes."""
        while not self._stopped:
            before = len(self.calls)
            if before <= hold:
                self._arrived.wait(0.002)
                self._arrived.clear()
                if not self.calls or len(self.calls) != before:
                    continue
            if losses and self.calls[0][2].seq == 0:
                losses -= 1
                self.lose(f"node {losses} is gone")
            else:
                self.finish()

    def _batch(self, indices: bytes) -> tuple[Any, tuple[int, int, int]]:
        """Encode a batch as a worker does."""
        if indices not in self._made:
            fd = os.memfd_create("fake-slot")
            os.ftruncate(fd, _STRIDE)
            receipt = ArenaWriter(fd, _STRIDE).open(0).write(torch.tensor(pickle.loads(indices)))
            array = np.frombuffer(os.pread(fd, receipt.nbytes, 0), np.uint8)
            os.close(fd)
            self._made[indices] = array, (receipt.root_offset, receipt.root_bytes, receipt.nbytes)
        return self._made[indices]
