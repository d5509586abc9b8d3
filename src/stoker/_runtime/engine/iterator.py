"""The iterator that users hold. It subclasses torch's iterator and has the attributes that other libraries use."""

from __future__ import annotations

import functools
import os
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import IterDataPipe
from torch.utils.data import dataloader as torch_loader

from stoker._receipt.receipt_writer import ReceiptWriter
from stoker._record.recorder import Recorder
from stoker._runtime.autoscale.controller import AutoscaleController
from stoker._runtime.checkpoint.epoch_start import EpochStart
from stoker._runtime.checkpoint.loader_state import LoaderState
from stoker._runtime.checkpoint.receipt_facts import make_receipt_writer
from stoker._runtime.device.device_stager import DeviceStager
from stoker._runtime.device.pinning import PinningStager
from stoker._runtime.device.stager import Stager
from stoker._runtime.engine import iterator_setup
from stoker._runtime.engine.epoch_prefetch import EpochPrefetch, OpenedEpoch
from stoker._runtime.engine.inline_iteration import InlineIteration
from stoker._runtime.engine.iteration import Iteration
from stoker._runtime.engine.recorder_setup import note_start_method
from stoker._runtime.plan.cpu_draws import on_cpu
from stoker._runtime.pool.finished_pools import FinishedPools
from stoker._runtime.pool.loader_stats import LoaderStats
from stoker._runtime.pool.outside_compile import outside_compile
from stoker._runtime.pool.pool import Pool
from stoker.arguments import Options

_clock = time.monotonic_ns
_Base: Any = torch_loader._BaseDataLoaderIter
_profiling = torch.autograd._profiler_enabled  # type: ignore[attr-defined]


@outside_compile
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
        self._finished_pools: FinishedPools = loader._finished_pools
        self._grows = autoscaler is not None
        """Whether the number of workers may change during this iteration."""
        self._iteration: Iteration | None = None
        self._pool: Pool | None = None
        self._handles: Sequence[Any] | None = None
        self._owner_pid = os.getpid()
        self._owns_pool = keep is None
        self._waits = prefetch is not None
        """Whether this epoch was opened ahead and is not yet asked for."""
        self._open_sampler(loader, state)
        self._prefetch_factor = loader.prefetch_factor
        self._in_order = loader.in_order
        self._worker_init_fn = loader.worker_init_fn
        self._iterable = self._dataset_kind == torch_loader._DatasetKind.Iterable
        self._bound = self._iterable or (options.rng == "torch" and self._num_workers > 0)
        """Whether each ticket belongs to one worker."""
        self._counts = self._iterable and self._IterableDataset_len_called is not None
        self._device_link = None if loader.device is None else loader._link()
        # Before any worker is started, because this may call the dataset, which may raise.
        carries = not options.kind.copies_dataset or keep is not None
        self._progress = self._epoch_start.progress(loader, carries=carries)
        open_receipt = functools.partial(
            make_receipt_writer,
            loader,
            self._epoch_start,
            options.name,
            state.receipts.id,
            self._progress.batches,
        )
        if prefetch is None:
            self._pool = self._take_pool(loader, options, stats, pool, keep)
        else:
            self._pool = pool
        assert self._pool is not None
        self._turn = self._pool.turn
        self._same_workers = self._pool is pool
        self._splittable = iterator_setup.splittable(options, self._pool, bound=self._bound)
        if prefetch is None:
            self._iteration = self._new_iteration(loader, options, stats, self._pool, autoscaler)
        else:
            self._iteration = prefetch
        assert self._iteration is not None
        epoch, seq = self._iteration.epoch, 0 if prefetch is None else prefetch.planned
        self._planner = iterator_setup.planner(self, loader, options, stats, epoch=epoch, seq=seq)
        if prefetch is None:
            self._start(state, open_receipt)
        else:
            self._progress.keep_receipt(open_receipt())

    def _open_sampler(self, loader: Any, state: LoaderState) -> None:
        """Draw the seed and open the sampler, as torch does, or as the loaded state says."""
        self._epoch_start = start = state.open(loader, ahead=self._waits)
        with on_cpu(loader.generator), start.generators_in_place():
            start.prepare(loader)
            kept = start.follows is not None
            super().__init__(_WithoutSeed(loader) if kept else loader)
            if self._num_workers > 0 and isinstance(self._dataset, IterDataPipe) and not kept:
                torch_loader._share_dist_seed(loader.generator, self._pg)  # type: ignore[no-untyped-call]  # as torch does
            start.take_over(self, loader)
        self._base_seed, self._shared_seed = start.base_seed, start.pipe_seed

    def _take_pool(
        self, loader: Any, options: Options, stats: LoaderStats, pool: Pool | None, keep: Callable[[Pool], None] | None
    ) -> Pool:  # fmt: skip
        """The given pool with the dataset's changes, or a new pool if they cannot be sent."""
        saved = self._epoch_start.saved
        taken_up = saved is not None and (self._iterable or saved.dataset_state is not None)
        if pool is not None and (taken_up or not pool.announce(stats)):
            pool.close()  # its workers cannot get the loaded state, or the changes on the dataset
            pool = None
        if pool is None:
            plan, reason = iterator_setup.pool_plan(self, loader, options, stats)
            if self._recorder is not None:
                note_start_method(self._recorder, plan.context, loader.multiprocessing_context, reason)
            pool = Pool(plan, persistent=keep is not None, predecessor=self._finished_pools.take_memory())
            pool.reserve()
            if keep is not None:
                keep(pool)
        return pool

    def _new_iteration(
        self, loader: Any, options: Options, stats: LoaderStats, pool: Pool, autoscaler: AutoscaleController | None
    ) -> Iteration:  # fmt: skip
        kind: Callable[..., Iteration] = Iteration
        if loader.prefetch_epochs and not self._owns_pool and not self._iterable:
            kind = functools.partial(EpochPrefetch, follow=functools.partial(_follow, weakref.ref(loader)))
        elif autoscaler is None and iterator_setup.is_direct(self, options, pool):
            kind = InlineIteration
        return kind(
            pool,
            iterator_setup.policy(self, options, pool),
            stats,
            self._progress,
            seed=self._base_seed,
            pipe_seed=self._shared_seed or 0,
            timeout_s=self._timeout if isinstance(self._timeout, int | float) else float(self._timeout),
            recorder=self._recorder,
            rows=(loader.batch_size or 1) if self._iterable else 1,
            autoscaler=autoscaler,
            stager=stager_for(self, loader, pool),
        )

    def _start(self, state: LoaderState, open_receipt: Callable[[], ReceiptWriter]) -> None:
        """Hand out the first tasks. The receipt and the state are opened behind them: the workers need neither."""
        iteration = self._iteration
        assert iteration is not None
        try:
            iteration.start(self._planner)
            self._progress.keep_receipt(open_receipt())
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
        iteration: Iteration | None = None
        try:
            with self._turn:
                iteration = self._iteration
                if iteration is None:
                    raise StopIteration
                try:
                    data = iteration.next()
                except StopIteration:
                    self._progress.finish()
                    began_ns = _clock()
                    self._finish(exhausted=True)
                    if self._recorder is not None:
                        self._recorder.stopped(began_ns, _clock())
                    raise
            iteration.handed_over()  # the last call: from here on no interrupt comes before the loop has the batch
        except BaseException:
            if iteration is not None:
                iteration.not_handed_over()
            raise
        return data

    @property
    def _workers(self) -> Sequence[Any]:
        if self._handles is not None:
            return self._handles
        return [] if self._pool is None else self._pool._workers

    def abandon(self) -> None:
        """The loader was closed: end the workers. The next ``next()`` raises LoaderClosed."""
        iteration = self._iteration
        if self._pool is not None:
            self._pool.close()
        if iteration is not None:
            iteration.leave_staging()

    def _shutdown_workers(
        self, _getpid: Callable[[], int] = os.getpid, _exits: Callable[[], bool] = sys.is_finalizing
    ) -> None:
        """End the iteration and its workers. Idempotent. Does nothing in a forked child, nor when the interpreter exits."""
        if not _exits() and getattr(self, "_owner_pid", None) == _getpid():
            self._finish(shutdown=True)

    def _finish(self, *, shutdown: bool = False, exhausted: bool = False) -> None:
        """The iteration is over. Workers of its own leave: behind an epoch that is exhausted, else before this returns."""
        pool = self._pool
        if pool is None:
            return
        self._handles = list(pool._workers)
        iteration, self._iteration, self._pool = self._iteration, None, None
        self._progress.end()
        if isinstance(iteration, EpochPrefetch) and self._waits:
            iteration.forget_ahead()
        elif iteration is not None and not (isinstance(iteration, EpochPrefetch) and iteration.parked):
            iteration.close()
        if self._owns_pool and exhausted:
            self._finished_pools.see_off(pool)
        elif self._owns_pool or shutdown:
            pool.close()

    def __del__(
        self, _getpid: Callable[[], int] = os.getpid, _exits: Callable[[], bool] = sys.is_finalizing
    ) -> None:
        # At interpreter exit all pools were closed (pool/lifecycle.py), and names of modules may be None by now.
        if not _exits() and getattr(self, "_owner_pid", None) == _getpid():
            self._finish()


class _WithoutSeed:
    """A loader whose base seed is drawn from a generator that nobody uses. The seed of a DataPipe is drawn as always."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._piped = isinstance(loader.dataset, IterDataPipe)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    @property
    def generator(self) -> torch.Generator | None:
        """torch's iterator reads it first for a DataPipe, and then for the base seed."""
        if self._piped:
            self._piped = False
            return self._loader.generator  # type: ignore[no-any-return]
        return torch.Generator()


def stager_for(iterator: Any, loader: Any, pool: Pool) -> Stager | None:
    """The stage between opening a batch and handing it over; None for none.

    Without workers nothing is made ahead, and a thread of its own would only be waited for.
    """
    ahead = pool.plan.kind.workers
    if iterator._device_link is not None:
        return DeviceStager(iterator._device_link, loader.device_prefetch, worker_thread=ahead)
    if iterator._pin_memory:
        return PinningStager(iterator._pin_memory_device, worker_thread=ahead)
    return None


def _follow(loader: weakref.ref[Any], prefetch: EpochPrefetch) -> OpenedEpoch | None:
    """Open the next epoch ahead. None if the loader is gone."""
    alive = loader()
    return None if alive is None else alive._open_next_epoch(prefetch)
