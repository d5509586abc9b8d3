"""A worker on trial: forked from the process of a probe and set up as torch sets up its own, to be measured from inside.

What is fetched and in which order is settled before the fork. A trial lasts as long as its function lets it; it dies with the
probe.
"""

from __future__ import annotations

import gc
import os
import pickle
import random
import select
import socket
import struct
import traceback
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from stoker._tools.doctor.probes import NotTold
from stoker._tools.sandbox.subject import Subject

T = TypeVar("T")
_FAILED = b"!"
_MADE = b"="
_LENGTH = struct.Struct("<Q")
_CHUNK_BYTES = 1 << 16


class TrialFailed(NotTold):
    """The worker raised or died before it had an answer. The text says how."""


def rows_per_batch(subject: Subject) -> int:
    """The loader's batch size; that of its first batch under a batch sampler of the user's; 1 without batching."""
    given = subject.arguments.get("batch_size")
    if isinstance(given, int) and given > 0:
        return given
    batches = subject.arguments.get("batch_sampler")
    if batches is None:
        return 1
    first = next(iter(batches), None)
    return max(1, len(first)) if isinstance(first, Sequence) else 1


def spread(subject: Subject, count: int) -> list[Any]:
    """Indices from everywhere in the dataset, in a random order that is always the same. Of a stream: so many numbers.

    A sampler of the user's decides instead, when there is one: only it knows what may be asked for.
    """
    if subject.is_stream:
        return list(range(count))
    sampler = subject.arguments.get("sampler")
    if sampler is not None and not _indexes_all(sampler):
        return list(islice(subject.indices(), count))
    length = len(subject.dataset)
    count = min(count, length)
    places = [place * length // count for place in range(count)]
    random.Random(0).shuffle(places)
    return [place for place in places if place not in subject.avoid]


def _indexes_all(sampler: Any) -> bool:
    from torch.utils.data import DistributedSampler, RandomSampler, SequentialSampler

    return isinstance(sampler, RandomSampler | SequentialSampler | DistributedSampler)


def fetcher(subject: Subject) -> Callable[[Sequence[Any]], list[Any]]:
    """Samples for indices, as torch fetches them; of a stream the next ones, as many as there are indices.

    Those that cannot be made are left out: other probes tell of them.
    """
    dataset = subject.dataset
    many = getattr(dataset, "__getitems__", None)
    stream: Iterator[Any] = iter(dataset) if subject.is_stream else iter(())

    def fetch(indices: Sequence[Any]) -> list[Any]:
        if subject.is_stream:
            return list(islice(stream, len(indices)))
        if many:
            subject.touch(_number(indices[0]))
            try:
                return list(many(list(indices)))
            except Exception:
                return []
        found = []
        for index in indices:
            subject.touch(_number(index))
            try:
                found.append(dataset[index])
            except Exception:
                continue
        return found

    return fetch


def _number(index: Any) -> int:
    return index if isinstance(index, int) else -1


def in_worker(subject: Subject, function: Callable[[], T]) -> T:
    """What ``function`` returns in a forked worker, after ``worker_init_fn``. Raises TrialFailed when there is no answer."""
    lifeline, its_lifeline = socket.socketpair()
    reading, writing = os.pipe()
    with lifeline, open(reading, "rb"):
        pid = os.fork()
        if pid == 0:
            lifeline.close()
            _live(subject, function, its_lifeline, writing)
        its_lifeline.close()
        os.close(writing)
        answer = _whole(reading, pid)
        ending = _ending(pid)
    if answer[:1] == _MADE:
        made: T = pickle.loads(answer[1:])
        return made
    told = answer[1:].decode(errors="replace")
    raise TrialFailed(f"in a worker: {told}" if told else f"a worker on trial {ending}")


def _whole(reading: int, pid: int) -> bytes:
    """What it answered, b"" for none. The pipe's end is no sign: a process that the dataset started there holds it open."""
    told = b""
    events = select.poll()
    worker = os.pidfd_open(pid)
    try:
        events.register(reading, select.POLLIN)
        events.register(worker, select.POLLIN)
        while len(told) < _LENGTH.size or len(told) < _LENGTH.size + _LENGTH.unpack_from(told)[0]:
            ready = {fd for fd, _ in events.poll()}
            part = os.read(reading, _CHUNK_BYTES) if reading in ready else b""
            if not part:  # it has died
                return b""
            told += part
    finally:
        os.close(worker)
    return told[_LENGTH.size :]


def _ending(pid: int) -> str:
    try:
        return f"ended with code {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}"
    except ChildProcessError:  # the target has SIGCHLD ignored: nobody learns how children end
        return "ended"


def _live(subject: Subject, function: Callable[[], Any], lifeline: socket.socket, writing: int) -> None:
    """The whole life of the forked process. Never returns."""
    try:
        from stoker._runtime.worker.process_setup import hold_lifeline

        hold_lifeline(lifeline.fileno())
        _as_torch_does(subject)
        answer = _MADE + pickle.dumps(function())
    except BaseException as error:
        answer = _FAILED + "".join(traceback.format_exception_only(error)).strip().encode()
    try:
        with open(writing, "wb") as answers:
            answers.write(_LENGTH.pack(len(answer)) + answer)
    finally:
        os._exit(0)


def _as_torch_does(subject: Subject) -> None:
    """What ``torch.utils.data._utils.worker._worker_loop`` does before the first index."""
    import torch
    from torch.utils.data._utils import worker

    if not any(kind.__module__ == "stoker.loader" for kind in type(subject.loader).__mro__):
        gc.unfreeze()  # the probe's process keeps its objects from collections; torch's workers do not
    torch.set_num_threads(1)
    seed = 0
    random.seed(seed)
    torch.manual_seed(seed)
    workers = max(1, int(subject.arguments.get("num_workers") or 1))
    worker._worker_info = worker.WorkerInfo(id=0, num_workers=workers, seed=seed, dataset=subject.dataset)
    init = subject.arguments.get("worker_init_fn")
    if init is not None:
        init(0)
