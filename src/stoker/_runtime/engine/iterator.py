"""The iterator that users hold. It subclasses torch's iterator and has the attributes that other libraries use."""

from __future__ import annotations

import functools
import logging
import os
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils.data import IterDataPipe, MapDataPipe
from torch.utils.data import dataloader as torch_loader

from stoker._record.recorder import Recorder
from stoker._runtime.autoscale.controller import AutoscaleController
from stoker._runtime.checkpoint.epoch_start import EpochStart, snapshot_every
from stoker._runtime.checkpoint.loader_state import LoaderState
from stoker._runtime.device.pinning import PinningStager
from stoker._runtime.device.stager import Stager
from stoker._runtime.engine.epoch_prefetch import EpochPrefetch, OpenedEpoch
from stoker._runtime.engine.iteration import Iteration
from stoker._runtime.engine.loader_stats import LoaderStats
from stoker._runtime.engine.pool import Pool, PoolPlan
from stoker._runtime.engine.recorder_setup import note_start_method
from stoker._runtime.executors.process import start_method
from stoker._runtime.plan import ranks
from stoker._runtime.plan.planner import Planner
from stoker._runtime.protocol.worker_spec import WorkerSpec
from stoker._runtime.scheduler.policy import DEEPEN_LIMIT, Policy
from stoker._runtime.worker import collation
from stoker._runtime.worker.fetch import batch_getter
from stoker._runtime.worker.rng import dataset_generators
from stoker.arguments import Options

_clock = time.monotonic_ns
_Base: Any = torch_loader._BaseDataLoaderIter
_profiling = torch.autograd._profiler_enabled  # type: ignore[attr-defined]


class StokerIter(_Base):  # type: ignore[misc]
    """Iterates once, on one thread. Dropping the last reference ends it at once.

    torch's base class draws the base seed and opens the sampler, so the parent's random streams match torch's. ``pool`` is the
    loader's, for persistent workers; otherwise the iterator makes one and closes it at the end. ``prefetch`` is the iteration of
    the epoch before, if this epoch is opened ahead.
    """

    def __init__(
        self,
        loader: Any,
        options: Options,
        stats: LoaderStats,
        state: LoaderState,
        pool: Pool | None,
        keep: Callable[[Pool], None] | None,
        prefetch: EpochPrefetch | None = None,
        recorder: Recorder | None = None,
        autoscaler: AutoscaleController | None = None,
    ) -> None:
        self._recorder = recorder
        self._grows = autoscaler is not None
        """Whether the number of workers may change during this iteration."""
        self._iteration: Iteration | None = None
        self._pool: Pool | None = None
        self._owner_pid = os.getpid()
        self._waits = prefetch is not None
        """Whether this epoch was opened ahead and is not yet asked for."""
        self._epoch_start = epoch_start = state.open(loader, ahead=prefetch is not None)
        with _on_cpu(loader.generator), epoch_start.generators_in_place():
            epoch_start.prepare(loader)
            super().__init__(loader)
            if self._num_workers > 0 and isinstance(self._dataset, IterDataPipe):
                torch_loader._share_dist_seed(loader.generator, self._pg)  # type: ignore[no-untyped-call]  # as torch does
            epoch_start.take_over(self, loader)
        self._prefetch_factor = loader.prefetch_factor
        self._in_order = loader.in_order
        self._stager = stager_for(self)
        self._worker_init_fn = loader.worker_init_fn
        iterable = self._dataset_kind == torch_loader._DatasetKind.Iterable
        bound = iterable or (options.rng == "torch" and self._num_workers > 0)
        # Before any worker is started, because this may call the dataset, which may raise.
        self._progress = epoch_start.progress(
            loader, carries=not options.kind.copies_dataset or keep is not None
        )
        found = pool
        if prefetch is None:
            pool = self._take_pool(loader, options, stats, pool, keep, iterable, bound)
        assert pool is not None
        self._pool = pool
        self._same_workers = pool is found
        self._owns_pool = keep is None
        self._handles: Sequence[Any] | None = None
        self._counts = iterable and self._IterableDataset_len_called is not None
        splittable = _splittable(options, pool, bound)
        self._iteration = prefetch
        if prefetch is None:
            kind: Callable[..., Iteration] = Iteration
            if loader.prefetch_epochs and keep is not None and not iterable:
                kind = functools.partial(
                    EpochPrefetch, follow=functools.partial(_follow, weakref.ref(loader))
                )
            self._iteration = kind(
                pool,
                _policy(self, options, pool, bound=bound, split=splittable),
                stats,
                self._progress,
                seed=self._base_seed,
                pipe_seed=self._shared_seed or 0,
                timeout_s=self._timeout,
                recorder=recorder,
                rows=(loader.batch_size or 1) if iterable else 1,
                autoscaler=autoscaler,
            )
        assert self._iteration is not None
        by_sample = options.rng == "sample"
        self._planner = Planner(
            _drawn_on_cpu(epoch_start.source.iterator, loader.generator),
            epoch=self._iteration.epoch,
            seed=self._base_seed,
            batched=self._auto_collation and not iterable,
            splittable=splittable,
            places=functools.partial(ranks.keys, self._index_sampler, self._base_seed) if by_sample else None,
            spares=options.on_bad_sample == "replace" and not iterable,
            killers=stats.killers,
            begin=epoch_start.begin(loader, self._progress),
            after=epoch_start.source.after,
            seq=prefetch.planned if prefetch is not None else 0,
        )
        if prefetch is None:
            self._start(state)

    def _take_pool(
        self, loader: Any, options: Options, stats: LoaderStats, pool: Pool | None, keep: Callable[[Pool], None] | None,
        iterable: bool, bound: bool,
    ) -> Pool:  # fmt: skip
        """The given pool with the dataset's changes, or a new pool if they cannot be sent."""
        saved = self._epoch_start.saved
        taken_up = saved is not None and (iterable or saved.dataset_state is not None)
        if pool is not None and (taken_up or not pool.announce(stats)):
            pool.close()  # its workers cannot get the loaded state, or the changes on the dataset
            pool = None
        if pool is None:
            plan, reason = _pool_plan(self, loader, options, iterable, bound)
            if self._recorder is not None:
                note_start_method(self._recorder, plan.context, loader.multiprocessing_context, reason)
            pool = Pool(plan, persistent=keep is not None)
            pool.reserve()
            if keep is not None:
                keep(pool)
        return pool

    def _start(self, state: LoaderState) -> None:
        iteration = self._iteration
        assert iteration is not None
        try:
            iteration.start(self._planner)
        except BaseException:
            self._finish()  # now, because the pool may serve another iteration before the traceback dies
            raise
        state.begun(self._epoch_start, self._progress, same_workers=self._same_workers)

    # Epochs that were opened ahead

    def opened_epoch(self) -> OpenedEpoch:
        """This epoch, for the iteration that opened it ahead."""
        return OpenedEpoch(self._planner, self._progress)

    @property
    def epoch_start(self) -> EpochStart:
        """How this epoch began."""
        return self._epoch_start

    @property
    def can_go_on(self) -> bool:
        """Whether the epoch before is over, and its pool is open."""
        prefetch, pool = self._iteration, self._pool
        return (
            isinstance(prefetch, EpochPrefetch) and prefetch.parked and pool is not None and not pool.closed
        )

    def withdraw(self) -> None:
        """Drop this epoch, which was opened ahead."""
        self._finish()

    def go_on(self, state: LoaderState) -> None:
        """Begin this epoch, which was opened ahead: ``iter(loader)`` was called."""
        assert isinstance(self._iteration, EpochPrefetch)
        self._waits = False
        state.begun(self._epoch_start, self._progress)
        self._iteration.go_on()

    def __next__(self) -> Any:
        if self._counts or _profiling():
            return super().__next__()
        data = self._next_data()
        self._num_yielded += 1
        return data

    def _next_data(self) -> Any:
        iteration = self._iteration
        if iteration is None:
            raise StopIteration
        try:
            data = iteration.next()
        except StopIteration:
            self._progress.finish()
            began_ns = _clock()
            self._finish()
            if self._recorder is not None:
                self._recorder.stopped(began_ns, _clock())
            raise
        return data if self._stager is None else self._staged(self._stager, data, iteration)

    def _staged(self, stager: Stager, source: Any, iteration: Iteration) -> Any:
        """The batch as the stager makes it. The pool keeps the source for as long as a device reads it."""
        began_ns = _clock()
        batch = iteration.pool.fenced.stage(stager, source)
        if iteration.observer is not None:
            iteration.observer.staged(began_ns, _clock())
        return batch

    @property
    def _workers(self) -> Sequence[Any]:
        if self._handles is not None:
            return self._handles
        return [] if self._pool is None else self._pool._workers

    def abandon(self) -> None:
        """The loader was closed: end the workers. The next ``next()`` raises LoaderClosed."""
        if self._pool is not None:
            self._pool.close()

    def _shutdown_workers(self) -> None:
        """End the iteration and its workers. Idempotent; does nothing in a forked child."""
        if getattr(self, "_owner_pid", None) == os.getpid():
            self._finish(shutdown=True)

    def _finish(self, *, shutdown: bool = False) -> None:
        pool = self._pool
        if pool is None:
            return
        self._handles = list(pool._workers)
        iteration, self._iteration, self._pool = self._iteration, None, None
        if isinstance(iteration, EpochPrefetch) and self._waits:
            iteration.forget_ahead()
        elif iteration is not None and not (isinstance(iteration, EpochPrefetch) and iteration.parked):
            iteration.close()
        if self._owns_pool or shutdown:
            pool.close()

    def __del__(self, _getpid: Callable[[], int] = os.getpid) -> None:
        if getattr(self, "_owner_pid", None) == _getpid():
            self._finish()


def stager_for(iterator: Any) -> Stager | None:
    """The stage between opening a batch and handing it over; None for none."""
    return PinningStager(iterator._pin_memory_device) if iterator._pin_memory else None


def _draws_on_cpu() -> bool:
    return not torch._C._len_torch_function_stack() or torch.get_default_device().type == "cpu"


def _on_cpu(generator: torch.Generator | None) -> AbstractContextManager[Any]:
    """A context in which seeds and orders are drawn on the CPU, unless the user's generator is on another device."""
    if _draws_on_cpu() or (generator is not None and generator.device.type != "cpu"):
        return nullcontext()
    return torch.device("cpu")


def _drawn_on_cpu(sampler: Iterator[Any], generator: torch.Generator | None) -> Iterator[Any]:
    if _draws_on_cpu():
        return sampler
    return _CpuDraws(sampler, generator)


class _CpuDraws:
    """A sampler's iterator that draws on the CPU."""

    def __init__(self, sampler: Iterator[Any], generator: torch.Generator | None) -> None:
        self._sampler = sampler
        self._generator = generator

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        with _on_cpu(self._generator):
            return next(self._sampler)


def _pool_plan(it: Any, loader: Any, options: Options, iterable: bool, bound: bool) -> tuple[PoolPlan, str]:
    """How to build the pool, and why the start method is not the one asked for; empty if it is."""
    dataset = it._dataset
    init = loader.worker_init_fn
    workers = max(1, it._num_workers)
    piped = isinstance(dataset, IterDataPipe | MapDataPipe)
    if piped:
        if it._num_workers > 0:
            init = functools.partial(torch_loader._sharding_worker_init_fn, init, it._world_size, it._rank)
        else:
            torch.utils.data.graph_settings.apply_sharding(dataset, it._world_size, it._rank)
    changed = collation.additions()
    spec = WorkerSpec(
        dataset=dataset,
        iterable=iterable,
        auto_collation=it._auto_collation,
        collate_fn=it._collate_fn,
        drop_last=it._drop_last,
        worker_init_fn=init,
        num_workers=it._num_workers,
        rng=options.rng,  # type: ignore[arg-type]
        rank=it._rank if piped else ranks.rank_of(it._index_sampler),
        own_collate=collation.is_default(it._collate_fn) and changed is None,
        collate_map=changed,
        on_bad_sample=options.on_bad_sample,  # type: ignore[arg-type]
        stride=ranks.places(it._index_sampler)[1],
        stored=() if iterable or options.rng == "torch" else dataset_generators.find(dataset),
        snapshot_every=snapshot_every(loader),
        metered=loader.record is not False or it._grows,
        threads=options.threads,
        warns_of_shared_rng=options.threads > 1 and not getattr(loader, "_shared_rng_warned", False),
    )
    if options.threads > 1:
        _tell_threads(loader, dataset, options)
    if options.kind.threads or options.threads > 1:
        dataset_generators.warn_once(spec.stored, loader)
    choice = start_method.StartMethodChoice(None)
    if options.kind.processes:
        choice = start_method.choose(loader.multiprocessing_context, spec, name=options.name)
        start_method.warn_once(choice, loader)
    budget_bytes = options.memory_budget_bytes
    plan = PoolPlan(
        spec,
        options.kind,
        workers,
        bound,
        choice.context,
        budget_bytes,
        choice.packed_spec,
        grows=it._grows and not bound,
    )
    return plan, choice.reason


def _tell_threads(loader: Any, dataset: Any, options: Options) -> None:
    """Warn once per loader if ``threads_per_worker`` has no effect."""
    if batch_getter(dataset) is not None and not getattr(loader, "_shared_rng_warned", False):
        logging.getLogger("stoker").warning(
            "threads_per_worker=%d is not used: %s has __getitems__, which fetches the rows of a batch itself",
            options.threads,
            type(dataset).__name__,
        )
    loader._shared_rng_warned = True


def _follow(loader: weakref.ref[Any], prefetch: EpochPrefetch) -> OpenedEpoch | None:
    """Open the next epoch ahead. None if the loader is gone."""
    alive = loader()
    return None if alive is None else alive._open_next_epoch(prefetch)


def _splittable(options: Options, pool: Pool, bound: bool) -> bool:
    spec = pool.plan.spec
    return (
        options.split_batches
        and spec.own_collate
        and pool.plan.kind.processes
        and not bound
        and batch_getter(spec.dataset) is None
        and not pool.opener.misfit
    )


def _policy(it: Any, options: Options, pool: Pool, *, bound: bool, split: bool) -> Policy:
    if it._num_workers == 0:
        window = deepest = 1
    else:
        window = it._prefetch_factor * it._num_workers
        deepest = DEEPEN_LIMIT * it._num_workers if options.deepen and it._in_order and not bound else window
    return Policy(
        window=max(1, window),
        max_window=max(1, deepest),
        in_order=it._in_order,
        bound=bound,
        streams=pool.plan.spec.iterable,
        split=split,
        restarts=options.restarts,
        heal=options.restarts > 0 or options.on_bad_sample != "raise",
        sift=options.on_bad_sample != "raise",
        budget_bytes=pool.budget.bytes if pool.budget is not None else 0,
        careful=options.memory_budget_bytes is not None,
        shared_memory=pool.executor.shared_memory,
        prefetch=it._prefetch_factor or 0,
    )
