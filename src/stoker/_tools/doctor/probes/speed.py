"""Makes batches without workers and with them, and looks at what they take. At most about 3 s."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from stoker._host.cpus import cpus
from stoker._host.memory_available import room_bytes
from stoker._tools.doctor.facts.speed import SlowIndex, SpeedFacts
from stoker._tools.doctor.instruments.hotspots import hotspots
from stoker._tools.doctor.instruments.race import LoaderPace, race, worker_count
from stoker._tools.doctor.instruments.trial import fetcher, rows_per_batch, spread
from stoker._tools.doctor.probes import FactUnavailable
from stoker._tools.probes.digest import digest
from stoker._tools.sandbox.subject import Subject

_INLINE_S = 0.8
_AGAIN_S = 0.4
_PROFILED_S = 0.3
_RACE_S = 0.8
_MOST_SAMPLES = 4096
_MOST_BATCHES = 48
_SLOW = 5
"""How many times the usual a sample has to take to be a straggler; as in the verdicts of a record."""
_LEAST_SLOW_S = 0.001
_NEEDS_WORKERS_S = 0.15
"""A batch that takes so long without workers needs no race to be sure that they help."""
_PROFILED_FROM_S, _TRACED_S = 50e-6, 0.05
_SHARED_BYTES = 256 << 20


class _Inline(NamedTuple):
    """What batches took in this process. ``rows`` of a batch were made: fewer than asked for where samples are very slow."""

    rows: int
    fetch_s: list[float]
    cpu_s: list[float]
    queued_s: list[float]
    collate_s: list[float]
    sample_s: list[tuple[Any, float]]
    samples: list[Any]
    batch: Any


def probe(subject: Subject) -> SpeedFacts:
    """Measure samples. Raises where none can be made."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in workers: otherwise the two would not be the same work
    try:
        return _probed(subject)
    finally:
        torch.set_num_threads(threads)


def _probed(subject: Subject) -> SpeedFacts:
    rows = rows_per_batch(subject)
    indices = spread(subject, max(_MOST_SAMPLES, 4 * rows))
    batches = [indices[at : at + rows] for at in range(0, len(indices), rows)]
    if len(batches) > 1 and len(batches[-1]) < rows:
        batches.pop()
    fetch = fetcher(subject)
    if not indices or not fetch(indices[:1]):
        raise FactUnavailable("no sample could be made")
    inline = _inline(subject, fetch, batches)
    if not inline.fetch_s:
        raise FactUnavailable("no batch could be made")
    scale = rows / inline.rows
    inline_s = scale * statistics.median(
        fetched + collated for fetched, collated in zip(inline.fetch_s, inline.collate_s, strict=True)
    )
    each_s = [seconds for _, seconds in inline.sample_s]
    sample_s = statistics.median(each_s) if each_s else statistics.median(inline.fetch_s) / inline.rows
    slow, slow_share = _stragglers(subject, inline, sample_s)
    tensors = list(_tensors(inline.batch))
    pace = _pace(subject, batches, rows, inline_s)
    return SpeedFacts(
        rows=rows,
        batches=len(inline.fetch_s),
        inline_s=inline_s,
        fetch_s=scale * statistics.median(inline.fetch_s),
        cpu_s=scale * statistics.median(inline.cpu_s),
        queued_s=scale * statistics.median(inline.queued_s),
        collate_s=scale * statistics.median(inline.collate_s),
        batch_bytes=int(scale * sum(each.nbytes for each in tensors)),
        batch_tensors=len(tensors),
        workers=pace.workers,
        loader_s=pace.loader_s,
        parent_s=pace.parent_s,
        share_s=_shared_s(tensors),
        sample_s=sample_s,
        sampled=len(each_s),
        slow=slow,
        slow_share=slow_share,
        hot=_hot(fetch, indices, sample_s),
        repeatable=_repeatable(subject, inline),
        sample_bytes=sum(each.nbytes for each in _tensors(inline.samples[:1])),
        length=None
        if subject.is_stream
        else len(subject.dataset)
        if hasattr(subject.dataset, "__len__")
        else None,
        usable_cpus=cpus().usable,
        available_bytes=room_bytes(),
        why_no_loader=pace.why_not,
        foreign_cpus=pace.foreign_cpus,
    )


def _inline(subject: Subject, fetch: Callable[..., list[Any]], batches: Sequence[Sequence[Any]]) -> _Inline:
    collate = subject.arguments.get("collate_fn") or _default_collate()
    one_by_one = not hasattr(subject.dataset, "__getitems__")
    fetch_s: list[float] = []
    cpu_s: list[float] = []
    queued_s: list[float] = []
    collate_s: list[float] = []
    sample_s: list[tuple[Any, float]] = []
    samples: list[Any] = []
    rows, batch = len(batches[0]), None
    began = time.perf_counter()
    for indices in batches[:_MOST_BATCHES]:
        samples, queued = [], _queued_s()
        wall, cpu = time.perf_counter(), time.process_time()
        for part in ([index] for index in indices) if one_by_one else (indices,):
            before = time.perf_counter()
            samples += fetch(part)
            now = time.perf_counter()
            if one_by_one:
                sample_s.append((part[0], now - before))
            if now - began > _INLINE_S and not fetch_s:
                break
        fetched, computed = time.perf_counter() - wall, time.process_time() - cpu
        if not samples:
            continue
        before = time.perf_counter()
        try:
            batch = collate(samples)
        except Exception:  # other probes tell why
            batch = samples
        fetch_s.append(fetched)
        cpu_s.append(computed)
        queued_s.append(min(fetched, _queued_s() - queued))
        collate_s.append(time.perf_counter() - before)
        if time.perf_counter() - began > _INLINE_S:
            rows = len(samples) if len(fetch_s) == 1 else rows
            break
    return _Inline(max(1, rows), fetch_s, cpu_s, queued_s, collate_s, sample_s, samples, batch)


def _queued_s() -> float:
    """How long this thread was ready and had no CPU, since it began; 0 where the kernel does not tell."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _default_collate() -> Callable[[Any], Any]:
    from torch.utils.data import default_collate

    return default_collate


def _stragglers(subject: Subject, inline: _Inline, sample_s: float) -> tuple[tuple[SlowIndex, ...], float]:
    """Samples that are slow three times: once or twice may be the machine. The share is of those that were."""
    late_s = max(_SLOW * sample_s, _LEAST_SLOW_S)
    suspects = sorted((each for each in inline.sample_s if each[1] > late_s), key=lambda each: -each[1])
    if not suspects or subject.is_stream:
        return (), 0.0
    found, asked, began = [], 0, time.perf_counter()
    for index, seconds in suspects[:8]:
        if time.perf_counter() - began > _AGAIN_S:
            break
        asked += 1
        least = min(seconds, *_again(subject, index))
        if least > late_s:
            found.append(SlowIndex(index if isinstance(index, int) else -1, least))
    share = len(suspects) / len(inline.sample_s) * len(found) / max(1, asked)
    return tuple(sorted(found, key=lambda each: -each.seconds)), share


def _again(subject: Subject, index: Any) -> Iterator[float]:
    """Seconds of a sample, twice, less those in which others had the CPU."""
    for _ in range(2):
        before, queued = time.perf_counter(), _queued_s()
        try:
            subject.sample(index)
        except Exception:
            yield 0.0
        yield time.perf_counter() - before - (_queued_s() - queued)


def _pace(subject: Subject, batches: Sequence[Sequence[Any]], rows: int, inline_s: float) -> LoaderPace:
    workers = worker_count(subject)
    if inline_s > _NEEDS_WORKERS_S:
        return LoaderPace(workers, why_not="a batch takes so long that workers are needed")
    wanted = 6 * workers + max(8, min(128, int(_RACE_S / max(inline_s, 1e-6))))
    # Few batches are taken again: what they cost with workers and without is the same.
    rounds = [*batches] * (-(-wanted // len(batches)))
    return race(subject, rounds[:wanted], rows)


def _shared_s(tensors: Sequence[Any]) -> float | None:
    """What moving a batch into shared memory takes, as torch's workers do."""
    if not tensors or sum(each.nbytes for each in tensors) > _SHARED_BYTES:
        return None
    took = []
    try:
        for _ in range(3):
            copies = [each.clone() for each in tensors]
            before = time.perf_counter()
            for each in copies:
                each.share_memory_()
            took.append(time.perf_counter() - before)
    except RuntimeError:  # no room in /dev/shm, which other probes tell
        return None
    return min(took)


def _hot(fetch: Callable[..., list[Any]], indices: Sequence[Any], sample_s: float) -> Any:
    """Find the hot spots of as many samples as fit into the time, or of one."""
    if not _PROFILED_FROM_S < sample_s < 4 * _PROFILED_S:
        return ()
    some = indices[: max(1, int(_PROFILED_S / sample_s))]
    return hotspots(lambda: fetch(some), (lambda: fetch(some[:1])) if sample_s < _TRACED_S else None)


def _repeatable(subject: Subject, inline: _Inline) -> bool | None:
    """Whether some samples come out equal when they are made again, with whatever random numbers there are then."""
    if subject.is_stream or not inline.sample_s or inline.sample_s[0][1] > _AGAIN_S:
        return None
    try:
        return all(
            digest(subject.sample(index), strict=True) == digest(subject.sample(index), strict=True)
            for index, _ in inline.sample_s[:2]
        )
    except Exception:
        return None


def _tensors(batch: Any) -> Iterator[Any]:
    """Tensors of a batch, or what would become some."""
    import numpy as np
    import torch

    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, np.ndarray) and batch.dtype.kind in "biuf":
        yield torch.from_numpy(batch if batch.flags.writeable else batch.copy())
    elif isinstance(batch, dict):
        for value in batch.values():
            yield from _tensors(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from _tensors(value)
