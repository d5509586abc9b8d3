"""Workers as torch would start them, imitated: forks of the process that has the dataset, which answer once and end.

    probe ── fork ──► worker 0: seeds, worker_init_fn, samples ──► pickled answer ──► pipe ─┐
          └─ fork ──► worker 1: ...                                                        ─┴─► list of answers

They leave nothing behind: one that does not answer in time is killed, and all of them die with the process that probes.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import signal
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from types import FrameType
from typing import Any

import torch
from torch.utils.data import IterDataPipe

from stoker._runtime.worker.context import set_process_info
from stoker._runtime.worker.rng.seeding import seed_like_torch
from stoker._tools.profile.signal_probe import forked
from stoker._tools.sandbox.target import text_of

_CHUNK_BYTES = 1 << 16
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Lost:
    """Stands for the answer of a fork that gave none: it took too long, raised, or died."""

    reason: str


class Enough(BaseException):
    """The time of a fork is up: raised in whatever it does, so that it can tell how far it came."""


def answers(jobs: Sequence[Callable[[], Any]], within_s: float) -> list[Any]:
    """What each job returns in a fork of its own, all at the same time; ``Lost`` for one that does not answer in time."""
    sys.stdout.flush()
    sys.stderr.flush()
    waiting: dict[int, tuple[int, int]] = {}
    told: list[Any] = [Lost(f"no answer within {within_s:.3g} s") for _ in jobs]
    try:
        for number, job in enumerate(jobs):
            ours, theirs = os.pipe()
            try:
                pid = forked()
            except OSError:
                os.close(ours)
                raise
            else:
                if pid == 0:
                    _answer(job, theirs)
                waiting[ours] = (number, pid)
            finally:
                os.close(theirs)
        _collect(waiting, told, monotonic() + within_s)
    finally:
        for ours, (_, pid) in waiting.items():
            os.close(ours)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):  # the target may have SIGCHLD ignored
                os.waitpid(pid, 0)
    return told


def _collect(waiting: dict[int, tuple[int, int]], told: list[Any], deadline: float) -> None:
    text = {ours: bytearray() for ours in waiting}
    with selectors.DefaultSelector() as selector:
        for ours in waiting:
            selector.register(ours, selectors.EVENT_READ)
        while selector.get_map() and (left := deadline - monotonic()) > 0:
            for key, _ in selector.select(left):
                part = os.read(key.fd, _CHUNK_BYTES)
                text[key.fd] += part
                whole = _whole(text[key.fd])
                if whole is not None or not part:
                    selector.unregister(key.fd)
                    number, _ = waiting[key.fd]
                    told[number] = Lost("its process died") if whole is None else pickle.loads(whole)


def _whole(text: bytearray) -> bytes | None:
    """A message that is complete. The end of the pipe may never come: what a dataset starts in a fork holds it open."""
    if len(text) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(text)
    return bytes(text[_LENGTH.size :]) if len(text) == _LENGTH.size + length else None


def _answer(job: Callable[[], Any], pipe: int) -> None:
    """Runs in the fork, and never returns. What the dataset prints is nobody's business here."""
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        torch.set_num_threads(1)
        try:
            found: Any = job()
        except Exception as error:
            found = Lost(f"{type(error).__name__}: {text_of(error)}")
        with os.fdopen(pipe, "wb") as file:
            packed = pickle.dumps(found)
            file.write(_LENGTH.pack(len(packed)) + packed)
    finally:
        os._exit(0)


@contextmanager
def soft_limit(seconds: float) -> Iterator[None]:
    """In a fork: raises ``Enough`` after so long, also out of a call that waits."""

    def strike(number: int, frame: FrameType | None) -> None:
        raise Enough

    signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def become_worker(
    dataset: Any, worker: int, workers: int, base_seed: int, init: Callable[[int], Any] | None
) -> Any:
    """In a fork: what torch's loader does in a worker before the first sample. Returns the dataset as the worker has it."""
    seed = seed_like_torch(base_seed, worker)
    if isinstance(dataset, IterDataPipe):
        dataset = _prepared(dataset, worker, workers, base_seed)
    set_process_info(worker, workers, seed, dataset)
    if init is not None:
        init(worker)
    return dataset


def _prepared(pipe: Any, worker: int, workers: int, base_seed: int) -> Any:
    """DataPipes are shared out among ranks and workers, and given one seed, by the loader itself."""
    from torch import distributed
    from torch.utils.data.graph_settings import apply_random_seed, apply_sharding

    grouped = distributed.is_available() and distributed.is_initialized()
    world, rank = (distributed.get_world_size(), distributed.get_rank()) if grouped else (1, 0)
    apply_sharding(pipe, workers * world, worker * world + rank)
    return apply_random_seed(pipe, torch.Generator().manual_seed(base_seed))
