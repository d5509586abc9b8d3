"""Derives the parts of an iterator from the loader's arguments: how to build its pool, its policy and its planner.

``it`` is the iterator that is being made. Its base class, torch's, has read the loader already.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import torch
from torch.utils.data import IterDataPipe, MapDataPipe
from torch.utils.data import dataloader as torch_loader

from stoker._runtime.checkpoint.epoch_start import snapshot_every
from stoker._runtime.executors.inline import InlineExecutor
from stoker._runtime.executors.process import start_method
from stoker._runtime.plan import ranks
from stoker._runtime.plan.cpu_draws import drawn_on_cpu
from stoker._runtime.plan.planner import Planner
from stoker._runtime.pool.loader_stats import LoaderStats
from stoker._runtime.pool.pool import Pool
from stoker._runtime.pool.pool_plan import PoolPlan
from stoker._runtime.protocol.worker_spec import WorkerSpec
from stoker._runtime.scheduler.policy import DEEPEN_LIMIT, Policy
from stoker._runtime.worker import collation
from stoker._runtime.worker.fetch import batch_getter
from stoker._runtime.worker.rng import dataset_generators
from stoker.arguments import Options

_SHARED_RNG = "threads share generators"


def pool_plan(it: Any, loader: Any, options: Options, stats: LoaderStats) -> tuple[PoolPlan, str]:
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
        iterable=it._iterable,
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
        stored=() if it._iterable or options.rng == "torch" else dataset_generators.find(dataset),
        snapshot_every=snapshot_every(loader),
        metered=loader.record is not False or it._grows,
        threads=options.threads,
        warns_of_shared_rng=options.threads > 1 and _SHARED_RNG not in stats.warned,
    )
    if options.threads > 1:
        _warn_of_threads(stats, dataset, options)
    if options.kind.threads or options.threads > 1:
        dataset_generators.warn_once(spec.stored, stats.warned)
    choice = start_method.StartMethodChoice(None)
    if options.kind.processes:
        choice = start_method.choose(loader.multiprocessing_context, spec, name=options.name)
        start_method.warn_once(choice, stats.warned)
    budget_bytes = options.memory_budget_bytes
    plan = PoolPlan(
        spec,
        options.kind,
        workers,
        it._bound,
        choice.context,
        budget_bytes,
        choice.packed_spec,
        grows=it._grows and not it._bound,
        backend=options.backend,
    )
    return plan, choice.reason


def _warn_of_threads(stats: LoaderStats, dataset: Any, options: Options) -> None:
    """Warn once per loader if ``threads_per_worker`` has no effect."""
    if batch_getter(dataset) is not None and _SHARED_RNG not in stats.warned:
        logging.getLogger("stoker").warning(
            "threads_per_worker=%d is not used: %s has __getitems__, which fetches the rows of a batch itself",
            options.threads,
            type(dataset).__name__,
        )
    stats.warned.add(_SHARED_RNG)


def splittable(options: Options, pool: Pool, *, bound: bool) -> bool:
    """Whether several workers may make one batch."""
    spec = pool.plan.spec
    return (
        options.split_batches
        and spec.own_collate
        and pool.plan.kind.processes
        and not bound
        and batch_getter(spec.dataset) is None
        and not pool.opener.misfit
    )


def is_direct(it: Any, options: Options, pool: Pool) -> bool:
    """Whether batches can be made one by one, without a scheduler: no workers, no streams, no time limit, no bad samples."""
    return (
        type(pool.executor) is InlineExecutor
        and not it._iterable
        and not it._timeout
        and options.on_bad_sample == "raise"
    )


def policy(it: Any, options: Options, pool: Pool) -> Policy:
    """The scheduler's settings."""
    if it._num_workers == 0:
        window = deepest = 1
    else:
        window = it._prefetch_factor * it._num_workers
        deepest = (
            DEEPEN_LIMIT * it._num_workers if options.deepen and it._in_order and not it._bound else window
        )
    return Policy(
        window=max(1, window),
        max_window=max(1, deepest),
        in_order=it._in_order,
        bound=it._bound,
        streams=pool.plan.spec.iterable,
        split=it._splittable,
        restarts=options.restarts,
        restart_idle=options.restarts > 0 or options.on_bad_sample != "raise",
        exclude_killers=options.on_bad_sample != "raise",
        budget_bytes=pool.budget.bytes if pool.budget is not None else 0,
        careful=options.memory_budget_bytes is not None,
        shared_memory=pool.executor.shared_memory,
        prefetch=it._prefetch_factor or 0,
    )


def planner(it: Any, loader: Any, options: Options, stats: LoaderStats, *, epoch: int, seq: int) -> Planner:
    """The planner of the epoch. ``seq`` is the number of its first ticket."""
    start = it._epoch_start
    by_sample = options.rng == "sample"
    return Planner(
        drawn_on_cpu(start.source.iterator, loader.generator),
        epoch=epoch,
        seed=it._base_seed,
        batched=it._auto_collation and not it._iterable,
        splittable=it._splittable,
        places=functools.partial(ranks.keys, it._index_sampler, it._base_seed) if by_sample else None,
        spares=options.on_bad_sample == "replace" and not it._iterable,
        killers=stats.killers,
        begin=start.begin(loader, it._progress),
        after=start.source.after,
        seq=seq,
    )
