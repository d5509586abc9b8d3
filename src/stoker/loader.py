"""The facade: torch's DataLoader by type, arguments and meaning, on stoker's engine."""

from __future__ import annotations

import copy
import os
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict
from types import TracebackType
from typing import Any, Literal, TypeVar

import torch.utils.data
from torch.utils.data import Dataset, Sampler

from stoker import arguments
from stoker._host.cpus import cpus
from stoker._receipt.data_receipt import DataReceipt
from stoker._record.call_site import site
from stoker._record.live_objects import LiveObjects
from stoker._record.recorder import Recorder
from stoker._runtime.autoscale.controller import AutoscaleController, begun
from stoker._runtime.autoscale.initial_workers import InitialWorkers, choose_initial_workers
from stoker._runtime.checkpoint.epoch_start import stream_count
from stoker._runtime.checkpoint.loader_state import LoaderState
from stoker._runtime.checkpoint.state_format import parse
from stoker._runtime.device.device_link import DeviceLink
from stoker._runtime.device.target_device import link_for
from stoker._runtime.engine import recorder_setup
from stoker._runtime.engine.epoch_prefetch import EpochPrefetch, OpenedEpoch, PrefetchedEpoch
from stoker._runtime.engine.iterator import StokerIter
from stoker._runtime.executors.ray.options import Ray
from stoker._runtime.pool import memory_stats
from stoker._runtime.pool.finished_pools import FinishedPools
from stoker._runtime.pool.loader_stats import LoaderStats
from stoker._runtime.pool.outside_compile import leave_files_alone, outside_compile
from stoker._runtime.pool.pool import Pool
from stoker.argument_numbers import REQUIREMENTS, require_batch_size
from stoker.errors import coded

T_co = TypeVar("T_co", covariant=True)

_PREFETCH = 2
"""torch's default, which it has only while there are workers."""


@outside_compile
class DataLoader(torch.utils.data.DataLoader[T_co]):
    """Drop-in replacement for ``torch.utils.data.DataLoader``: same arguments, same meaning.

    Arguments down to ``in_order`` are torch's; the others are stoker's own. Only ``dataset`` is required. Each argument is an
    attribute of the same name. Constructing a loader starts nothing and reads no sample.

    At every ``iter()``, changed attributes of the dataset are sent to persistent workers; ``refresh()`` is for changes inside
    containers. ``close()``, or ``with DataLoader(...) as loader``, ends the workers. ``trim()`` frees memory of an idle loader.
    ``stats()`` says what was delivered, what went wrong and how much memory is used.

    Args:
        dataset: Map-style (``__getitem__`` and ``__len__``, optionally ``__getitems__``) or iterable, as for torch.
        batch_size: Samples in a batch. None: the dataset gives whole batches.
        shuffle: Draw the samples in a new order every epoch.
        sampler: The order of indices, instead of ``shuffle``.
        batch_sampler: The indices of each batch, instead of ``batch_size``, ``shuffle``, ``sampler`` and ``drop_last``.
        num_workers: How many workers make batches. 0: the training process makes them itself. "auto": the loader starts from a
            saved profile or from the facts of the machine, and adds and removes workers during training. The batches do not
            depend on it. ``loader.num_workers`` is the present number; ``stats()["tuning"]`` has every change with its reason.
        collate_fn: Makes a batch of a list of samples. Default: torch's ``default_collate``.
        pin_memory: Hand batches over in page-locked memory, so that copies to an accelerator can overlap with work.
        drop_last: Leave the last batch out if it is not full.
        timeout: After how many seconds without a batch ``next()`` raises; 0: never. It also works without workers.
        worker_init_fn: Called in each worker with its number, before the first sample.
        multiprocessing_context: How worker processes start: "fork", "forkserver", "spawn" or a context. None: Python's default,
            or "forkserver" if a library is loaded whose threads die in a fork.
        generator: The source of the order and the base seed. Default: torch's global generator.
        prefetch_factor: Batches that each worker may be ahead. None: 2, and more if that helps.
        persistent_workers: Keep workers between epochs.
        pin_memory_device: The device to pin for; deprecated by torch.
        in_order: Deliver batches in the sampler's order. False: as they become ready.
        executor: "process" (default), "thread", "inline" (the meaning of ``num_workers=0``), or "ray": workers on the nodes of
            a Ray cluster. ``stoker.Ray(...)`` says which cluster, which resources, and how many workers stay on this machine.
        device: Batches arrive on this device: "cuda", "xpu:1", a ``torch.device``, or "auto" for the accelerator that there is.
            One asynchronous copy brings each batch from its worker's memory, while the device works on the batches before.
            Tensors anywhere in the batch move; objects with their own ``to`` are asked; other values stay. None: the CPU.
        device_prefetch: How many batches are ahead on the device: copied, or being copied, and not yet taken.
        rng: "batch" (default): the same random numbers in ``__getitem__`` for every ``num_workers``, 0 included. "sample":
            random numbers depend on each sample's place in the epoch. "torch": torch's streams per worker and static
            assignment.
        restarts: How often a batch whose worker died is tried again before an error is raised. 0 is torch's behaviour.
        on_bad_sample: What happens to a sample that raises, is None, or kills its worker. "raise" (default): an error. "skip":
            the batch has no row for it. "replace": another sample of the same epoch takes its place, so batches keep their
            size. ``stats()`` counts bad samples.
        memory_budget: Bound on bytes made and not yet delivered: a number of bytes, or a text like "2GiB". Default: a quarter
            of the available memory, divided by local ranks and busy loaders. Both shrink while memory is short.
        split_batches: Whether several workers may make the rows of one batch. None: if it pays.
        threads_per_worker: How many rows of a batch a worker process fetches at once, in threads. It is for map-style datasets
            that wait for storage or a network: 2 workers of 16 threads wait for 32 files with the memory of 2. ``__getitem__``
            must be thread-safe. Threads share the global random generators; ``stoker.generator()`` is not shared. It has no
            effect without workers.
        snapshot_every_n_steps: How often samplers and iterable datasets with their own state (``state_dict``) are asked for it.
            When a state is loaded, items since the last answer are skipped again.
        prefetch_epochs: With persistent workers, open the next epoch and make its first batches while the last batches of this
            one are made. Its seed and order are then drawn that early. If the dataset's attributes or the sampler's epoch
            change after that, those batches are made again.
        name: What this loader is called in messages and records.
        record: False: keep no record of the waiting. Otherwise it is kept in memory (``stats()["record"]``, ``stoker top``). A
            path: also append it to that file, or to a new file in that folder. None: STOKER_RECORD in the environment may name
            a folder.
    """

    _live: LiveObjects[StokerIter] | None = None
    _finished_pools: FinishedPools | None = None
    _loader_stats: LoaderStats | None = None
    _resume_state: LoaderState | None = None
    _prefetched: PrefetchedEpoch | None = None
    _recorder: Recorder | None = None
    _site: str | None = None
    _autoscaler: AutoscaleController | None = None
    _initial_workers: InitialWorkers | None = None
    _device_links: dict[torch.device, DeviceLink] | None = None
    _known: bool = False
    """Whether it is constructed: from here on attributes are set by others."""

    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int | Literal["auto"] = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        executor: arguments.Executor | Ray | None = None,
        device: str | torch.device | None = None,
        device_prefetch: int = 1,
        rng: arguments.RngMode = "batch",
        restarts: int = 2,
        on_bad_sample: arguments.BadSampleMode = "raise",
        memory_budget: int | str | None = None,
        split_batches: bool | None = None,
        threads_per_worker: int = 1,
        snapshot_every_n_steps: int = 1,
        prefetch_epochs: bool = False,
        name: str | None = None,
        record: bool | str | os.PathLike[str] | None = None,
    ) -> None:
        prefetch_open = prefetch_factor is None or isinstance(prefetch_factor, arguments.LeftOpen)
        chosen: InitialWorkers | None = None
        if arguments.is_auto(num_workers):
            by_size = batch_size if batch_sampler is None else None
            chosen = choose_initial_workers(
                dataset, by_size, executor=arguments.executor_name(executor), threads=threads_per_worker
            )
            # What torch refuses without workers is no contradiction here: there may be some tomorrow.
            num_workers = arguments.Auto(max(1, chosen.workers))
        assert not isinstance(num_workers, str)
        recorded_by_lightning = "__pl_saved_args" in vars(self)
        # Set before torch's constructor counts the processes, because threads are none.
        self.executor: arguments.Executor | Ray | None = executor
        require_batch_size(batch_size)
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=None if prefetch_open else prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        if chosen is not None:
            self._initial_workers = chosen
            num_workers = self.num_workers = arguments.Auto(chosen.workers)
        arguments.check(
            executor=executor,
            device=device,
            device_prefetch=device_prefetch,
            rng=rng,
            restarts=restarts,
            on_bad_sample=on_bad_sample,
            memory_budget=memory_budget,
            split_batches=split_batches,
            snapshot_every_n_steps=snapshot_every_n_steps,
            prefetch_epochs=prefetch_epochs,
            lasting=persistent_workers or (num_workers == 0 and chosen is None),
            iterable=self._dataset_kind == torch.utils.data.dataloader._DatasetKind.Iterable,
            batched=self._auto_collation,
            threads_per_worker=threads_per_worker,
            name=name,
            num_workers=num_workers,
            record=record,
        )
        self.device = device
        self.device_prefetch = device_prefetch
        self.rng = rng
        self.restarts = restarts
        self.on_bad_sample = on_bad_sample
        self.memory_budget = memory_budget
        self.split_batches = split_batches
        self.threads_per_worker = threads_per_worker
        self.snapshot_every_n_steps = snapshot_every_n_steps
        self.prefetch_epochs = prefetch_epochs
        self.name = name
        self.record = record
        self._site = site()
        if prefetch_open and self.prefetch_factor is not None:
            profiled = chosen.prefetch if chosen is not None else None
            self.prefetch_factor = (
                arguments.LeftOpen(profiled or self.prefetch_factor) if num_workers else None
            )
        if not recorded_by_lightning:
            # Lightning records the arguments of __init__ in the classes that it knows when it asks for a loader. If this class
            # is imported later, it has recorded how torch's was called from here. Without that it reads our attributes.
            for mark in ("__pl_saved_args", "__pl_saved_kwargs", "__pl_attrs_record"):
                vars(self).pop(mark, None)
        self._known = True

    def _get_iterator(self) -> Any:
        """A new iterator, independent of all others. Subclasses of torch's loader override this, and may override it here."""
        if self._live is None:
            self._live = LiveObjects()
        if self._finished_pools is None or not self._finished_pools.ours:  # a forked child's are its own
            self._finished_pools = FinishedPools()
        leave_files_alone()
        began_ns = time.monotonic_ns()
        recorder = self._observer()
        iterator = self._new_iterator()
        if recorder is not None:
            recorder.opened(began_ns, time.monotonic_ns())
        self._live.add(iterator)
        return iterator

    def _new_iterator(self) -> StokerIter:
        autoscaler = self._autoscale_controller()
        if autoscaler is not None and autoscaler.pending is not None and not self._place().takes_up_streams:
            self._recount(autoscaler.at_edge())
        recorder = self._recorder or (None if autoscaler is None else autoscaler.recorder)
        opened = self._prefetched
        if opened is not None:
            if opened.wanted(self):
                self._prefetched = None
                opened.settle(self)
                opened.iterator.go_on(self._place())
                return opened.iterator
            self._take_back()
            del opened
        if self._place().takes_up_streams:
            self.refresh()
        persistent = self.persistent_workers and self.num_workers > 0
        pool: Any = self._iterator
        if isinstance(pool, Pool) and pool.executor.guard.held and not pool.busy:
            pool.close()  # an exception from outside came while it heard of its workers: it may not know all of them
        if persistent and isinstance(pool, Pool) and not pool.closed:
            if pool.reserve():
                try:
                    return StokerIter(
                        self,
                        self._resolved(),
                        self._own_stats(),
                        self._place(),
                        pool,
                        self._keep,
                        recorder=recorder,
                        autoscaler=autoscaler,
                    )
                except BaseException:
                    pool.unreserve()
                    raise
            persistent = (
                False  # another iterator is in the middle of its epoch: this one gets workers of its own
            )
        if self.num_workers > 0:
            self.check_worker_number_rationality()
        keep = self._keep if persistent else None
        return StokerIter(
            self, self._resolved(), self._own_stats(), self._place(), None, keep, recorder=recorder, autoscaler=autoscaler,
        )  # fmt: skip

    def _autoscale_controller(self) -> AutoscaleController | None:
        """Return what chooses the number of workers; None where the user did."""
        if (
            not isinstance(self.num_workers, arguments.Auto)
            or not arguments.executor_kind(self.executor).workers
        ):
            return None
        if self._autoscaler is None:
            first = self._initial_workers or InitialWorkers(self.num_workers, "as it was set")
            recorder = self._recorder or recorder_setup.quiet_recorder(self.name or "loader")
            self._autoscaler = AutoscaleController(self, first, self._own_stats(), recorder)
        return self._autoscaler

    def _recount(self, workers: int | None) -> None:
        """The next epoch is to have so many workers, and those there are cannot become as many."""
        if workers is not None and workers != self.num_workers:
            self.refresh()
            self.num_workers = arguments.Auto(workers)

    def __setattr__(self, attr: str, value: Any) -> None:
        if attr == "num_workers" and isinstance(value, str) and arguments.is_auto(value):
            threads = self.threads_per_worker
            self._initial_workers = choose_initial_workers(
                self.dataset,
                self.batch_size,
                executor=arguments.executor_name(self.executor),
                threads=threads,
            )
            value = arguments.Auto(self._initial_workers.workers)
        if attr in REQUIREMENTS:
            REQUIREMENTS[attr](value)
        if attr == "num_workers" and self._known:
            self._renumber(value)
        super().__setattr__(attr, value)

    def _renumber(self, workers: int) -> None:
        """Somebody sets how many there are to be: persistent workers that "auto" chose, or is to choose, begin anew with these."""
        before = self.num_workers
        if isinstance(before, arguments.Auto) != isinstance(workers, arguments.Auto) and workers != before:
            self.refresh()
        if workers and self.prefetch_factor is None:
            self.prefetch_factor = arguments.LeftOpen(_PREFETCH)
        elif not workers and isinstance(self.prefetch_factor, arguments.LeftOpen):
            self.prefetch_factor = None  # as torch has it, whose loader may be built from our attributes

    def __iter__(self) -> StokerIter:
        iterator: StokerIter = self._get_iterator()
        return iterator

    def __enter__(self) -> DataLoader[T_co]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def stats(self) -> dict[str, Any]:
        """Return what this loader delivered and what went wrong, over all its iterators so far, as a new plain dict.

        ``bad_samples`` has a count and, by dataset index, how often a sample was bad and why (``on_bad_sample``). ``memory``
        has the budget and its reason, the arena, and for each worker process its proportional share, its private memory, and
        the growth of that since its first batches. Reading a worker takes about 10 ms; its figures may be a second old.
        ``device`` says how batches reach their device (``memory``), why better ways are not used (``fallbacks``), how many copies
        were made, and how many bytes are ahead on it; None without ``device``. ``record`` is the live run record, None with
        ``record=False``. ``tuning`` says how ``num_workers="auto"`` began, what it changed and why; None without it. ``cache`` has
        what sample caches did in the workers (``stoker.cache``, ``stoker.cached``): ``hits``, ``misses``, their bytes, the worker
        time that hits saved, and how many samples could not be kept (``passed``); None without a cache.
        """
        recorder = self._observer()
        record = None if recorder is None else recorder.record().as_dict()
        kept = [] if self._finished_pools is None else self._finished_pools.kept()
        memory = memory_stats.memory(self._pools(), kept)
        return {
            **self._own_stats().as_dict(), "memory": memory, "device": self._device_stats(kept), "record": record,
            "tuning": self._tuning(), "cache": self._cache_stats(),
        }  # fmt: skip

    def _cache_stats(self) -> dict[str, int] | None:
        use = self._own_stats().cache.use()
        return None if use is None else asdict(use)

    def _device_stats(self, kept: list[Pool]) -> dict[str, Any] | None:
        """Return the facts of the device that was used last; None if none was."""
        if not self._device_links:
            return None
        arenas = [pool.arena for pool in (*self._pools(), *kept)]
        registered_bytes = sum(arena.locked_bytes() for arena in arenas if arena is not None)
        return list(self._device_links.values())[-1].as_dict(registered_bytes)

    def _link(self) -> DeviceLink | None:
        """How batches get to the device; None for the CPU. It is kept for the life of the loader."""
        if self._device_links is None:
            self._device_links = {}
        link = link_for(self._device_links, self.device, self.name or "loader")
        self._own_stats().copy_times = None if link is None else link.times
        return link

    def _tuning(self) -> dict[str, Any] | None:
        if not isinstance(self.num_workers, arguments.Auto):
            return None
        workers = int(self.num_workers)
        return (
            begun(self._initial_workers, workers)
            if self._autoscaler is None
            else self._autoscaler.stats(workers)
        )

    def receipt(self) -> DataReceipt | None:
        """Return a receipt of the iteration that began last: digests of what was handed over. None before the first.

        Receipts of two runs, of all ranks, or of the legs of a resumed run can be compared: ``receipt.save(path)`` writes a
        file, and `stoker verify` reads it. An epoch under way has the batches so far. Call it on the thread that iterates.
        """
        return self._place().receipts.receipt()

    def state_dict(self, *, read_ahead: int = 0) -> dict[str, Any]:
        """Return where the training loop is in its data: a small new dict, for ``load_state_dict`` of a similar loader.

        Batches that the loop has taken count; batches made ahead are made again. The state can be loaded with another
        ``num_workers``, ``executor``, start method and ``in_order``. Before the first ``iter()``, and after the end of an
        epoch, it gives the epoch that would begin now. Taking it draws no random number. Apart from the states of your own
        samplers and datasets, it can be written as JSON.

        ``read_ahead=1`` is for callers that take a batch ahead of the one they train on: the batch taken last does not count.
        """
        if read_ahead not in (0, 1):
            raise ValueError(
                f"read_ahead is 0 or 1, but got {read_ahead!r}: a loader remembers one batch back"
            )
        return self._place().state(self, read_ahead)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next ``iter()`` continue where ``state_dict`` was taken. ``{}`` changes nothing.

        Raises ValueError, and changes nothing, if the state is damaged or of another loader. The message says what differs.
        """
        try:
            if isinstance(self.num_workers, arguments.Auto):
                self._adopt(state_dict)
            self._place().load(self, state_dict)
        except ValueError as error:
            coded(error, "STK909")
            raise

    def _adopt(self, state: Any) -> None:
        """Streams that are to be taken up settle how many workers the next epoch has."""
        streams = parse(state).streams if isinstance(state, dict) and state else None
        if streams is not None and len(streams) != stream_count(self):
            self._recount(len(streams))

    def trim(self) -> None:
        """Free memory of an idle loader with persistent workers: free parts of its arena, and caches of its workers.

        Workers unmap the arena, call ``__stoker_trim__`` of the dataset and of datasets inside it, collect garbage and return
        freed memory to the system. They do so when they are idle; this call does not wait for them. In the middle of an epoch
        only free memory of the arena is returned, with the next batch. If memory is short, idle loaders of this process are
        trimmed automatically.
        """
        for pool in self._pools():
            pool.trim()
        if self._finished_pools is not None:
            self._finished_pools.let_go()

    def refresh(self) -> None:
        """Let the next ``iter()`` start persistent workers anew, with the dataset as it is then.

        Changed attributes of the dataset reach them at every ``iter()`` without this. Changes inside a list, a dict or another
        object do not. An iterator in use keeps its workers. Without persistent worker processes this does nothing, because
        every ``iter()`` sees the present dataset. Idempotent.
        """
        self._take_back()
        pool: Any = self._iterator
        self._iterator = None
        if isinstance(pool, Pool) and pool.reserve():
            pool.close()  # nobody uses it; otherwise it ends with its iterator

    def close(self) -> None:
        """End all workers of this loader, including those of iterators in use. It can be iterated again. Idempotent."""
        if self._recorder is not None and self._pools():
            self._recorder.leaving()
        for iterator in self._in_use():
            iterator.abandon()
        self._take_back()
        pool: Any = self._iterator
        self._iterator = None
        if isinstance(pool, Pool):
            pool.close()
        if self._finished_pools is not None:
            self._finished_pools.settle()

    def check_worker_number_rationality(self) -> None:
        """Warn, in torch's words, about more workers than this process has CPUs for: quota and other local ranks count here."""
        if not self.num_workers or self.num_workers <= 1 or isinstance(self.num_workers, arguments.Auto):
            return
        # No process is started, and threads that wait are cheap.
        if arguments.executor_kind(self.executor).threads:
            return
        if arguments.executor_kind(self.executor).remote:  # they take the cluster's CPUs, which Ray counts
            return
        found = cpus()
        if self.num_workers > found.usable:
            warnings.warn(
                f"This DataLoader will create {self.num_workers} worker processes in total. Our suggested max number of worker in "
                f"current system is {found.usable}, which is smaller than what this DataLoader is going to create: "
                f"{found.reason}. Please be aware that excessive worker creation might get DataLoader running slow or even freeze: "
                "lower num_workers, unless workers mostly wait, for storage say.",
                stacklevel=2,
            )

    def __getstate__(self) -> dict[str, Any]:
        """Without the workers: a copy starts its own."""
        place = copy.copy(self._resume_state)
        kept = {
            key: value
            for key, value in self.__dict__.items()
            if key not in ("_loader_stats", "_recorder", "_autoscaler")
        }
        return {
            **kept,
            "_iterator": None,
            "_live": None,
            "_finished_pools": None,
            "_prefetched": None,
            "_device_links": None,
            "_resume_state": place,
        }

    def _pools(self) -> list[Pool]:
        """The persistent one, if there is any, and those of iterators in use."""
        found: list[Any] = [self._iterator, *(iterator._pool for iterator in self._in_use())]
        return list({id(pool): pool for pool in found if isinstance(pool, Pool) and not pool.closed}.values())

    def _in_use(self) -> list[StokerIter]:
        """The iterators that somebody has."""
        return [] if self._live is None else self._live.all()

    def _open_next_epoch(self, prefetch: EpochPrefetch) -> OpenedEpoch | None:
        """Begin the next epoch while this one is under way; None when that has to wait for ``iter()``."""
        pool: Any = self._iterator
        if not self.prefetch_epochs or self._place().pending or pool is not prefetch.pool or pool.changed():
            return None
        try:
            iterator = StokerIter(
                self,
                self._resolved(),
                self._own_stats(),
                self._place(),
                pool,
                self._keep,
                prefetch,
                self._recorder,
            )
        except Exception:  # of the sampler, say: it is raised when the epoch is asked for
            self._place().take_back()
            return None
        self._prefetched = PrefetchedEpoch(iterator, self.dataset)
        return iterator.opened_epoch()

    def _take_back(self) -> None:
        """An epoch that was opened ahead, if there is one, is not wanted as it is."""
        opened, self._prefetched = self._prefetched, None
        if opened is not None:
            opened.take_back(self, self._place())

    def _own_stats(self) -> LoaderStats:
        if self._loader_stats is None:
            return self.__dict__.setdefault("_loader_stats", LoaderStats(self.name or "loader"))  # type: ignore[no-any-return]
        return self._loader_stats

    def _observer(self) -> Recorder | None:
        """Keeps the record; None when none is wanted."""
        if self._recorder is None and self.record is not False:
            made = recorder_setup.make_recorder(self, self._resolved(), self._site)
            if self.__dict__.setdefault("_recorder", made) is made:  # another thread may have been first
                recorder_setup.connect(made, self, self._own_stats(), self._place().receipts)
        return self._recorder

    def _keeps_seed(self) -> bool:
        """Whether ``iter()`` draws no base seed: as in torch, while persistent workers go on with the streams that they began."""
        pool: Any = self._iterator
        lasting = self.rng == "torch" and self.persistent_workers and self.num_workers > 0
        return lasting and isinstance(pool, Pool) and not pool.closed

    def _place(self) -> LoaderState:
        if self._resume_state is None:
            self._resume_state = LoaderState()
        return self._resume_state

    def _keep(self, pool: Pool) -> None:
        self._iterator = pool  # type: ignore[assignment]

    def _resolved(self) -> arguments.Options:
        chosen = self._initial_workers if isinstance(self.num_workers, arguments.Auto) else None
        return arguments.resolve(
            executor=self.executor,
            rng=self.rng,
            restarts=self.restarts,
            on_bad_sample=self.on_bad_sample,
            memory_budget=self.memory_budget,
            split_batches=chosen.split if chosen and self.split_batches is None else self.split_batches,
            threads_per_worker=self.threads_per_worker,
            name=self.name,
            num_workers=self.num_workers,
            prefetch_given=not isinstance(self.prefetch_factor, arguments.LeftOpen),
            chosen_because=chosen.reason if chosen else None,
        )
