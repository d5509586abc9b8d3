"""Makes some samples without workers: the first two batches in the sampler's order, then from all over the dataset."""

from __future__ import annotations

import io
import operator
import pickle
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
import torch.utils.data

from stoker._tools.doctor.facts.samples import Difference, SampleFacts, SampleFailure
from stoker._tools.doctor.instruments import structure
from stoker._tools.probes import accelerator
from stoker._tools.sandbox.subject import Subject
from stoker._tools.sandbox.target import text_of, user_stack

_SOFT_S = 1.5
_MOST = 64
_FEWEST = 2
_PATROL_S = 0.5
_MOST_PATROLLED = 2000
_GOLDEN = 0.6180339887498949
_MOST_DIFFERENCES = 8
_MOST_FAILURES = 8
_TEXT = 500
_END = object()


def probe(subject: Subject) -> SampleFacts:
    """Make them until there are enough or the time is up, then one batch of the first."""
    before = accelerator.in_use()
    made = _Made()
    if subject.is_stream:
        _stream(subject, made)
    else:
        _indexed(subject, made)
    collate = collate_of(subject)
    differences = _differences(made, collate)
    batch = _batch(subject, made, collate)
    first = made.first
    return SampleFacts(
        indices=tuple(made.indices),
        leaves=structure.leaves(first) if made.samples else (),
        differences=differences,
        failures=tuple(made.failures[:_MOST_FAILURES]),
        nones=tuple(made.nones),
        none_collates=bool(made.nones) and first is not None and _collates(collate, [first, None]),
        sample_s=tuple(made.wall_s),
        cpu_s=tuple(made.cpu_s),
        collate_s=batch.collate_s,
        batch_bytes=batch.data_bytes,
        batch_tensors=batch.tensors,
        batch_leaves=batch.leaves,
        batch_storages=batch.storages,
        batch_rows=batch.rows,
        uses_accelerator=before is None and accelerator.in_use() is not None,
        unsendable=batch.unsendable,
    )


def collate_of(subject: Subject) -> Callable[[Any], Any]:
    """The loader's, or torch's own for a dataset alone."""
    from torch.utils.data._utils.collate import default_collate, default_convert

    given: Callable[[Any], Any] | None = subject.arguments.get("collate_fn")
    return given or (default_collate if batches(subject) else default_convert)


def batches(subject: Subject) -> bool:
    """Whether samples are collected into batches."""
    return (
        subject.arguments.get("batch_size") is not None or subject.arguments.get("batch_sampler") is not None
    )


@dataclass
class _Made:
    """What came of the samples so far. ``samples`` has the first that are not None, by index; ``differing`` those that
    are not like the first, one for each kind of difference at each place."""

    indices: list[int] = field(default_factory=list)
    samples: dict[int, Any] = field(default_factory=dict)
    differing: dict[tuple[str, str], tuple[tuple[str, str, str, str], int, Any]] = field(default_factory=dict)
    failures: list[SampleFailure] = field(default_factory=list)
    nones: list[int] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    ended: bool = False
    """Whether a stream is at its end."""
    until: float = field(default_factory=lambda: time.monotonic() + _SOFT_S)

    @property
    def enough(self) -> bool:
        """Whether the time is up, or too much of it is broken to go on."""
        late = time.monotonic() > self.until and len(self.indices) >= _FEWEST
        return late or len(self.failures) >= _MOST_FAILURES

    def take(self, number: int, make: Callable[[], Any]) -> None:
        """Make one. An exception is a failure; what the process does not survive is told by others."""
        self.indices.append(number)
        cpu, wall = time.process_time(), time.perf_counter()
        try:
            sample = make()
        except BaseException as error:  # SystemExit too: a worker would be gone
            self.failures.append(failure(number, error))
            return
        if sample is _END:
            self.ended = True
            del self.indices[-1]
            return
        self.wall_s.append(time.perf_counter() - wall)
        self.cpu_s.append(time.process_time() - cpu)
        if sample is None:
            self.nones.append(number)
            return
        if len(self.samples) < _MOST + 2:
            self.samples[number] = sample
        differs = structure.difference(self.first, sample)
        if differs is not None and len(self.differing) < _MOST_DIFFERENCES:
            self.differing.setdefault(differs[:2], (differs, number, sample))

    @property
    def first_index(self) -> int:
        index: int = next(iter(self.samples))
        return index

    @property
    def first(self) -> Any:
        """The first sample that is not None; None when there is none."""
        return next(iter(self.samples.values()), None)


def failure(index: int, error: BaseException, *, collating: bool = False) -> SampleFailure:
    """An exception as a fact. torch sends its class to the parent: one that cannot be pickled is never heard of."""
    try:
        pickle.dumps(type(error))
        picklable = True
    except Exception:
        picklable = False
    return SampleFailure(
        index, type(error).__name__, text_of(error)[:_TEXT], user_stack(error), picklable, collating
    )


def _indexed(subject: Subject, made: _Made) -> None:
    done: set[Any] = set()
    for position, index in enumerate(_chosen(subject)):
        if made.enough:
            return
        try:
            key: Any = operator.index(index)
        except TypeError:
            key = position
        if key not in done:
            done.add(key)
            made.take(key, lambda index=index: subject.sample(index))  # type: ignore[misc]


def _chosen(subject: Subject) -> Iterator[Any]:
    """The first batch, the ends, the second batch; then, as long as it goes fast, from all over the dataset."""
    drawn = subject.indices()
    size = min(subject.arguments.get("batch_size") or 8, _MOST // 2)
    first = list(islice(drawn, size))
    yield from first
    count = _numbered(subject)
    if count:
        yield from (index for index in (count - 1, 0) if index not in subject.avoid)
    yield from islice(drawn, size)
    until = time.monotonic() + _PATROL_S
    for index in islice(_patrol(subject, count) if count else drawn, _MOST_PATROLLED):
        if time.monotonic() > until:
            return
        yield index


def _numbered(subject: Subject) -> int:
    """How many indices there are, when all of them are used: a sampler of the user's may leave out those that are broken."""
    sampler: Any = subject.arguments.get("sampler")
    whole = (torch.utils.data.SequentialSampler, torch.utils.data.RandomSampler)
    batch_sampler = subject.arguments.get("batch_sampler")
    if sampler is not None and type(sampler) not in whole:
        return 0
    if batch_sampler is not None and type(batch_sampler) is not torch.utils.data.BatchSampler:
        return 0
    try:
        return len(subject.dataset)
    except Exception:  # it has none, or the user's raises
        return 0


def _patrol(subject: Subject, count: int) -> Iterator[int]:
    """Indices that lie evenly wherever it stops: a golden section apart, then all in turn where there are few."""
    seen = set(subject.avoid)
    for step in range(2 * count):
        index = int(step * _GOLDEN % 1.0 * count) if step < count else step - count
        if index not in seen:
            seen.add(index)
            yield index


def _stream(subject: Subject, made: _Made) -> None:
    wanted = min(2 * (subject.arguments.get("batch_size") or 8), _MOST)
    subject.touch(0)
    try:
        stream = iter(subject.dataset)
    except Exception as error:
        made.indices.append(0)
        made.failures.append(failure(0, error))
        return
    for number in range(wanted):
        subject.touch(number)
        made.take(number, lambda: next(stream, _END))
        if made.ended:
            return
        if made.enough or (made.failures and isinstance(stream, types.GeneratorType)):
            return


def _differences(made: _Made, collate: Callable[[Any], Any]) -> tuple[Difference, ...]:
    """What differs from the first sample: each kind of difference at each place once."""
    return tuple(
        structure.as_difference(differs, made.first_index, index, _collates(collate, [made.first, sample]))
        for differs, index, sample in made.differing.values()
    )


def _collates(collate: Callable[[Any], Any], samples: list[Any]) -> bool:
    with as_in_worker():
        try:
            collate(samples)
            collate(samples[::-1])  # the first sample decides the type
        except Exception:
            return False
    return True


@contextmanager
def as_in_worker() -> Iterator[None]:
    """Let torch's collation take the way it takes in workers: into shared memory, where types are not promoted."""
    worker: Any = torch.utils.data._utils.worker
    before = worker._worker_info
    worker._worker_info = worker.WorkerInfo(id=0, num_workers=1, seed=0, dataset=None)
    try:
        yield
    finally:
        worker._worker_info = before


@dataclass
class _CollatedBatch:
    rows: int = 0
    collate_s: tuple[float, ...] = ()
    data_bytes: int = 0
    tensors: int = 0
    leaves: tuple[Any, ...] = ()
    storages: tuple[Any, ...] = ()
    unsendable: tuple[str, ...] = ()


def _batch(subject: Subject, made: _Made, collate: Callable[[Any], Any]) -> _CollatedBatch:
    """One batch of what was made, as large as the loader's where there are enough."""
    numbers = list(made.samples)
    if not numbers:
        return _CollatedBatch()
    grouped = batches(subject)
    size = _batch_size(subject) or len(numbers)
    rows = [made.samples[number] for number in numbers[:size]] if grouped else [made.samples[numbers[0]]]
    start = time.perf_counter()
    try:
        subject.touch(numbers[0])
        batch = collate(rows if grouped else rows[0])
    except Exception as error:
        made.failures.append(failure(numbers[0], error, collating=True))
        return _CollatedBatch(len(rows))
    collate_s = time.perf_counter() - start
    held = list(structure.tensors(batch))
    whole = size / len(rows) if grouped else 1.0
    data_bytes = sum(each.numel() * each.element_size() for each in held)
    return _CollatedBatch(
        len(rows),
        (collate_s,),
        int(data_bytes * whole),
        len(held),
        structure.leaves(batch),
        structure.storages(batch),
        unsendable(batch),
    )


def _batch_size(subject: Subject) -> int | None:
    """How many samples a batch of the loader has; of a batch sampler: its first."""
    size: int | None = subject.arguments.get("batch_size")
    if size is None and subject.arguments.get("batch_sampler") is not None:
        size = len(next(subject.batches(), ()))
    return size or None


def unsendable(batch: Any) -> tuple[str, ...]:
    """What keeps a batch from being pickled, by its path; nothing is copied and no shared memory is made."""
    from stoker._pickling.find_unpicklable import search

    try:
        _Trial(io.BytesIO()).dump(batch)
        return ()
    except Exception as error:
        found = search(batch, "batch", _Trial)
        return (f"{found.text}: {found.error}" if found else f"batch: {error}",)


class _Trial(pickle.Pickler):
    """Pickles as torch's queue would, but for the data of tensors."""

    dispatch_table: dict[Any, Any] = {}  # noqa: RUF012

    def __init__(self, stream: Any) -> None:
        super().__init__(stream, protocol=5)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch.Tensor):
            if obj.requires_grad and not obj.is_leaf:
                raise RuntimeError("refusing to serialize non-leaf tensor which requires_grad")
            return int, (0,)
        return NotImplemented
