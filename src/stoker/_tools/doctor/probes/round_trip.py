"""Sends two batches through torch's own loader with one worker, and sees what arrives."""

from __future__ import annotations

import gc
import io
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from multiprocessing import context as spawning_context
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.utils.data

from stoker._runtime.protocol import stacks
from stoker._tools.doctor.facts.round_trip import RoundTripFacts, StartMethodTrip
from stoker._tools.doctor.instruments import structure
from stoker._tools.doctor.probes import FactUnavailable
from stoker._tools.doctor.probes.process import start_method
from stoker._tools.doctor.probes.samples import batches, collate_of
from stoker._tools.sandbox import progress_page, user_stacks
from stoker._tools.sandbox.subject import Subject
from stoker._tools.sandbox.target import text_of

_SOFT_S = 1.0
_BATCHES = 2
_PATIENCE_S = 4.0
_START_S = {"fork": 0.0, "spawn": 8.0, "forkserver": 8.0}
"""What an interpreter with torch may take to start on a busy machine."""
_TURN_S = 1
_MOST_PICKLED_BYTES = 64 << 20
_METHODS = ("fork", "forkserver", "spawn")
_kept: list[Any] = []
"""Where stacks go: a handler writes there as long as the process lives."""


def probe(subject: Subject) -> RoundTripFacts:
    """Try the loader's own start method, then judge the others by what they would have to pickle."""
    context = subject.arguments.get("multiprocessing_context")
    own = start_method() if context is None else context.get_start_method()
    sent = _SentBatch(subject)
    trips = [_trip(sent, own)]
    trips += [_judged(subject, each) for each in _METHODS if each not in (own, "fork")]
    return RoundTripFacts(own, tuple(trips), sent.rows)


class _SentBatch:
    """What is sent: the first samples that can be made, and the batch they make without workers."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.grouped = batches(subject)
        size = subject.arguments.get("batch_size") or (8 if self.grouped else 1)
        start = time.perf_counter()
        self.indices: list[Any] = []
        samples: list[Any] = []
        for index, make in self._makers(size):
            with suppress(BaseException):  # samples that fail are told elsewhere
                sample = make()
                # Those that do not go into one batch are told elsewhere too.
                alike = not samples or structure.difference(samples[0], sample) is None
                if sample is not None and (alike or subject.is_stream):
                    samples.append(sample)
                    self.indices.append(index)
            if time.perf_counter() - start > _SOFT_S:
                break
        if not samples:
            raise FactUnavailable("no sample could be made to send")
        self.rows = len(samples)
        try:
            self.batch = collate_of(subject)(samples if self.grouped else samples[0])
        except Exception as error:
            raise FactUnavailable(
                f"the first samples make no batch: {type(error).__name__}: {text_of(error)}"
            ) from None
        self.wait_s = _PATIENCE_S + 10 * (time.perf_counter() - start)

    def _makers(self, size: int) -> Any:
        subject = self.subject
        if subject.is_stream:
            stream = iter(subject.dataset)
            return ((at, lambda: next(stream)) for at in range(size))
        return (
            (index, lambda index=index: subject.sample(index)) for index in islice(subject.indices(), size)
        )

    def loader(self, method: str) -> Any:
        """torch's own, whatever the class of the target's."""
        given = self.subject.arguments
        options: dict[str, Any] = {
            "num_workers": 1,
            "multiprocessing_context": method,
            "timeout": _TURN_S,
            "collate_fn": given.get("collate_fn"),
            "worker_init_fn": given.get("worker_init_fn"),
        }
        if self.subject.is_stream:
            options["batch_size"] = self.rows if self.grouped else None
        elif self.grouped:
            options["batch_sampler"] = [self.indices] * _BATCHES
        else:
            options |= {"batch_size": None, "sampler": self.indices[:1] * _BATCHES}
        return torch.utils.data.DataLoader(self.subject.dataset, **options)


def _trip(sent: _SentBatch, method: str) -> StartMethodTrip:
    """With a worker that is watched: what it prints, and where it stands when nothing comes."""
    page_fd = progress_page.make()
    handler = stacks.StackFile(page_fd, 0)  # a forked worker inherits it
    printed = _Printed()
    start = time.perf_counter()
    iterator: Any = None
    try:
        iterator = iter(sent.loader(method))
        deadline = time.monotonic() + sent.wait_s + _START_S[method]
        for _ in range(_BATCHES):
            arrived = _received(iterator, deadline, printed)
            if isinstance(arrived, _Nothing):
                frames = user_stacks.of_group(page_fd, -1, [each.pid for each in iterator._workers])
                lost = not frames or _idle(frames)
                return StartMethodTrip(
                    method,
                    True,
                    "lost" if lost else "hung",
                    printed.last_error(),
                    "" if lost else frames,
                    time.perf_counter() - start,
                )
            differs = None if arrived is _END else structure.difference(sent.batch, arrived)
            if differs is not None and not sent.subject.is_stream:
                what, path, first, second = differs
                text = f"batch{path}: {what} {first} became {second}"
                return StartMethodTrip(method, True, "changed", text, seconds=time.perf_counter() - start)
    except Exception as error:
        text = f"{type(error).__name__}: {text_of(error)}"
        if not text_of(error).strip() or "exited unexpectedly" in text:
            text = "; ".join(filter(None, (text, printed.last_error())))
        return StartMethodTrip(method, True, "failed", text[-2000:], seconds=time.perf_counter() - start)
    finally:
        _dismiss(iterator)
        del iterator
        gc.collect()  # its queues have names in /dev/shm under spawn and forkserver
        printed.close()
        _kept.append((handler, page_fd))
    return StartMethodTrip(method, True, "arrived", seconds=time.perf_counter() - start)


class _Nothing:
    """Nothing came."""


_END = object()


def _received(iterator: Any, deadline: float, printed: _Printed) -> Any:
    """The next batch; in turns of a second, because what a worker printed may say that none will come."""
    while True:
        try:
            return next(iterator, _END)
        except RuntimeError as error:
            if "timed out after" not in str(error):
                raise
        if time.monotonic() > deadline or printed.last_error():
            return _Nothing()


def _idle(frames: str) -> bool:
    """Whether a worker stands where it waits for its next task: it believes to have sent the batch."""
    inner = frames.rpartition("_worker_loop")[2].splitlines()
    return len(inner) > 1 and os.path.join("multiprocessing", "queues.py") in inner[1]


def _dismiss(iterator: Any) -> None:
    """End its workers without torch's handlers, which would raise here, and without its waits."""
    if iterator is None:
        return
    with suppress(Exception):
        signals: Any = torch.utils.data._utils.signal_handling
        signals._remove_worker_pids(id(iterator))
        iterator._worker_pids_set = False
        for each in iterator._workers:
            each.kill()
        for each in iterator._workers:
            each.join(_TURN_S)
        iterator._shutdown = True  # nothing is left for its finalizer to do


class _Printed:
    """Standard error of the workers that are started while it is open."""

    def __init__(self) -> None:
        sys.stderr.flush()
        self._before = os.dup(2)
        self._fd = os.memfd_create("stoker-printed", os.MFD_CLOEXEC)
        os.dup2(self._fd, 2)

    def last_error(self) -> str:
        """The last line of a traceback that was printed; "" when there is none."""
        text = os.pread(self._fd, 1 << 16, max(0, os.fstat(self._fd).st_size - (1 << 16))).decode(
            errors="replace"
        )
        if "Traceback (most recent call last)" not in text:
            return ""
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
        return lines[-1] if lines else ""

    def close(self) -> None:
        """Put the former one back."""
        os.dup2(self._before, 2)
        os.close(self._before)
        os.close(self._fd)


def _judged(subject: Subject, method: str) -> StartMethodTrip:
    """Whether plain pickle takes what a fresh worker would be sent. Data of tensors is left out."""
    start = time.perf_counter()
    sent = {
        "dataset": subject.dataset,
        "collate_fn": subject.arguments.get("collate_fn"),
        "worker_init_fn": subject.arguments.get("worker_init_fn"),
    }
    for name, value in sent.items():
        try:
            with _spawning():
                _TensorlessPickler(_BoundedSink()).dump(value)
        except _TooMuch:
            continue  # so much of it can be pickled; the scan says more
        except Exception as error:
            text = f"{name}: {type(error).__name__}: {error}"
            return StartMethodTrip(method, False, "failed", text, seconds=time.perf_counter() - start)
    return StartMethodTrip(method, False, "arrived", seconds=time.perf_counter() - start)


@contextmanager
def _spawning() -> Iterator[None]:
    """multiprocessing's own locks and queues can be pickled only while a process is started."""
    before = spawning_context.get_spawning_popen()
    spawning_context.set_spawning_popen(_UnstartedProcess())  # type: ignore[arg-type]
    try:
        yield
    finally:
        spawning_context.set_spawning_popen(before)


class _UnstartedProcess:
    """The process that is not started."""

    def duplicate_for_child(self, fd: int) -> int:
        return fd


class _TooMuch(Exception):
    pass


class _BoundedSink(io.RawIOBase):
    """Takes so many bytes and keeps none."""

    taken = 0

    def write(self, data: Any) -> int:
        self.taken += len(data)
        if self.taken > _MOST_PICKLED_BYTES:
            raise _TooMuch
        return len(data)


class _TensorlessPickler(pickle.Pickler):
    def __init__(self, stream: Any) -> None:
        super().__init__(stream, protocol=5)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch.Tensor):
            return int, (0,)
        reducers: dict[type, Callable[[Any], Any]] = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
        reduce = reducers.get(type(obj))
        return reduce(obj) if reduce is not None else NotImplemented
