"""Makes the same samples in two workers and two epochs, as torch's loader would, and compares them by their content.

    scout: which samples can be made, how long one takes, and which generators they draw from
    then at once:  worker 0, epoch 0 │ the same again │ worker 1, epoch 0 │ worker 0, epoch 1 │ worker 1, epoch 1

Every worker makes the same samples in the same order, so that generators which were copied stand at the same place in all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from time import monotonic
from typing import Any

from torch.utils.data import IterableDataset, RandomSampler, SequentialSampler

from stoker._tools.doctor.facts import Missing
from stoker._tools.doctor.facts.randomness import RandomnessFacts
from stoker._tools.doctor.instruments.fork_workers import answers, become_worker
from stoker._tools.probes.digest import digest
from stoker._tools.probes.generator_watch import GeneratorWatch
from stoker._tools.probes.random_source import RandomSource
from stoker._tools.probes.target import length_of
from stoker._tools.sandbox.child import NoAnswer
from stoker._tools.sandbox.subject import Subject
from stoker._tools.sandbox.target import text_of

_LIMIT_S = 4.0
"""For the scout, and for all workers together."""

_WORTH_S = 0.8
"""What the workers may take in turn; a sample that is made twice may take longer."""

_SLOW_S = 0.4
"""A sample that takes longer is not made ten times."""

_INDICES = 4
_TIMES = 4
_ITEMS = 3
"""Of a stream, so many of its first items are compared."""

_SEEDS = (0x5EED, 0xF00D_CAFE)
"""Base seeds of the two epochs: torch draws a new one for each."""

_OPENCV_SEED = 0x0BEE

Series = list[tuple[int, ...]]
"""By index: the digests of what a worker made for it, in order."""


@dataclass(frozen=True, slots=True)
class _Scouted:
    good: tuple[Any, ...]
    sample_s: float
    sources: tuple[RandomSource, ...]
    problem: str


@dataclass(frozen=True, slots=True)
class _SamplePlan:
    """Which samples are made, and how: by all workers alike."""

    subject: Subject
    make: Callable[[Any, Any], Any]
    indices: tuple[Any, ...]
    times: int

    def dataset(self, worker: int, epoch: int) -> Any:
        """In a fork: become this worker."""
        init = self.subject.arguments.get("worker_init_fn")
        return become_worker(self.subject.dataset, worker, 2, _SEEDS[epoch], init)

    def series(self, dataset: Any) -> Series:
        rounds = [[digest(self.make(dataset, index)) for index in self.indices] for _ in range(self.times)]
        return list(zip(*rounds, strict=True))


def probe(subject: Subject) -> RandomnessFacts | Missing:
    """The verdict, and what the numbers come from. ``Missing`` when samples cannot be made, or not in time."""
    stream = isinstance(subject.dataset, IterableDataset)
    plan = _SamplePlan(
        subject, _first_items if stream else _sample, (0,) if stream else _chosen(subject), _TIMES
    )
    if not plan.indices:
        return Missing("the dataset is empty")
    (scouted,) = answers([lambda: _scout(plan)], _LIMIT_S)
    if isinstance(scouted, NoAnswer):
        return Missing(f"samples could not be made in a worker: {scouted.reason}")
    if not scouted.good:
        return Missing(f"samples could not be made in a worker: {scouted.problem}")
    if scouted.sample_s > _SLOW_S:
        return Missing(f"a sample takes {scouted.sample_s:.2g} s: too long to make some of them ten times")
    makings = int(_WORTH_S / 5 / max(scouted.sample_s, 1e-6))
    times = min(_TIMES, max(2, makings))
    plan = replace(plan, indices=scouted.good[: max(1, makings // times)], times=times)
    return _judged(plan, scouted.sources)


def _scout(plan: _SamplePlan) -> _Scouted:
    dataset = plan.dataset(0, 0)
    watch = GeneratorWatch(dataset)
    good: list[Any] = []
    took_s, problem = [], ""
    for index in plan.indices:
        started = monotonic()
        try:
            plan.make(dataset, index)
        except Exception as error:
            problem = problem or f"sample {index}: {type(error).__name__}: {text_of(error)}"
            continue
        good.append(index)
        took_s.append(monotonic() - started)
        if sum(took_s) > _WORTH_S / 2:
            break
    return _Scouted(tuple(good), min(took_s, default=0.0), watch.drawn(), problem)


def _judged(plan: _SamplePlan, sources: tuple[RandomSource, ...]) -> RandomnessFacts | Missing:
    persistent = bool(plan.subject.arguments.get("persistent_workers"))
    found = _made(plan, persistent)
    if isinstance(found, NoAnswer):
        return Missing(f"samples could not be made in workers: {found.reason}")
    by_worker, again = found
    first = by_worker[0, 0]
    rows = [row for row, digests in enumerate(first) if len(set(digests)) > 1]
    varies = bool(rows)
    frozen = [
        row for row in range(len(plan.indices)) if _frozen([series[row] for series in by_worker.values()])
    ]

    def equal(one: Series, other: Series) -> bool:
        return all(one[row] == other[row] for row in rows)

    workers_equal = all(equal(by_worker[0, epoch], by_worker[1, epoch]) for epoch in (0, 1))
    epochs_equal = all(equal(by_worker[worker, 0], by_worker[worker, 1]) for worker in (0, 1))
    if varies and (workers_equal or epochs_equal) and not sources and _is_opencv(plan, first):
        sources = (RandomSource("cv2", "cv2", "library"),)
    return RandomnessFacts(
        indices=tuple(_plain(plan.indices[row]) for row in rows or range(len(plan.indices))),
        times=plan.times,
        persistent=persistent,
        varies=varies,
        workers_equal=workers_equal,
        epochs_equal=epochs_equal,
        reproducible=equal(first, again),
        sources=sources if varies or frozen else (),
        own_init=plan.subject.arguments.get("worker_init_fn") is not None,
        frozen=tuple(_plain(plan.indices[row]) for row in frozen),
    )


def _frozen(series: Sequence[tuple[int, ...]]) -> bool:
    """Whether a sample stayed the same in each worker and was not the same in all."""
    return all(len(set(digests)) == 1 for digests in series) and len(set(series)) > 1


def _made(plan: _SamplePlan, persistent: bool) -> tuple[dict[tuple[int, int], Series], Series] | NoAnswer:
    """By worker and epoch, and the first of them once more. Workers that persist go on with what their first epoch left."""

    def work(worker: int, epochs: tuple[int, ...]) -> list[Series]:
        dataset = plan.dataset(worker, epochs[0])
        return [plan.series(dataset) for _ in epochs]

    turns = [(0, (0, 1)), (1, (0, 1))] if persistent else [(0, (0,)), (1, (0,)), (0, (1,)), (1, (1,))]
    found = answers([partial(work, *turn) for turn in [*turns, (0, (0,))]], _LIMIT_S)
    for each in found:
        if isinstance(each, NoAnswer):
            return each
    *workers, again = found
    made = {
        (worker, epoch): series
        for (worker, epochs), told in zip(turns, workers, strict=True)
        for epoch, series in zip(epochs, told, strict=True)
    }
    return made, again[0]


def _is_opencv(plan: _SamplePlan, first: Series) -> bool:
    """Whether samples change with OpenCV's seed, which cannot be read and which torch does not set."""
    cv2 = sys.modules.get("cv2")
    if cv2 is None:
        return False

    def work() -> Series:
        dataset = plan.dataset(0, 0)
        cv2.setRNGSeed(_OPENCV_SEED)
        return plan.series(dataset)

    (found,) = answers([work], _LIMIT_S)
    return not isinstance(found, NoAnswer) and found != first


def _first_items(dataset: Any, index: Any) -> Any:
    return list(islice(iter(dataset), _ITEMS))


def _sample(dataset: Any, index: Any) -> Any:
    """As torch's fetcher asks for it."""
    many = getattr(dataset, "__getitems__", None)
    return many([index])[0] if callable(many) else dataset[index]


def _chosen(subject: Subject) -> tuple[Any, ...]:
    """Some indices from all over the dataset; the first ones of a sampler that is the user's, whatever they are."""
    sampler, length = subject.arguments.get("sampler"), length_of(subject.dataset)
    if length is not None and (sampler is None or type(sampler) in (RandomSampler, SequentialSampler)):
        chosen = {length * part // _INDICES for part in range(_INDICES)} if length else set()
        return tuple(sorted(chosen - subject.avoid))
    return tuple(islice(subject.indices(), _INDICES))


def _plain(index: Any) -> int | str:
    return index if type(index) in (int, str) else repr(index)
