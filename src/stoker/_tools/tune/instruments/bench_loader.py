"""A loader of one setting over the target's data, without an end. The blocks of a race reuse it, with its live workers."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from typing import Any

from stoker._record.journal import ENVIRONMENT
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.worker.process.process_setup import single_thread
from stoker._tools.probes.loader_timing import end_workers, may_have_children
from stoker._tools.sandbox.refusal import TargetRefused
from stoker._tools.sandbox.subject import Subject
from stoker._tools.sandbox.time_limit import held
from stoker._tools.tune.instruments.lenient_dataset import lenient
from stoker.arguments import OWN

_FRESH = "stoker._tools.sandbox.server"
"""The main module of a sandbox that has an interpreter of its own."""
_COURSE, _AVOID = "order", "order_avoid"
_KEPT = tuple(each.name for each in OWN if each.benched)
"""Arguments of stoker's own loader that change a batch or the memory for batches. The target's values are kept."""


class NoBatch(TargetRefused):
    """The target gives no batch: its sampler or its stream is empty."""


class EndlessOrder:
    """The batches of indices that the target's loader asks for, repeated without end; single indices if it does not batch.

    Orders that are ``shared`` continue where the last one stopped. So no loader profits from files that another one has read.
    """

    def __init__(self, subject: Subject, *, shared: bool = True) -> None:
        self._subject = subject
        self._shared = shared

    def __iter__(self) -> Iterator[Any]:
        if not self._shared:
            yield from _endless(self._subject)
            return
        kept = self._subject.kept
        while True:
            if kept.get(_AVOID) != self._subject.avoid or _COURSE not in kept:
                kept[_COURSE], kept[_AVOID] = _endless(self._subject), self._subject.avoid
            try:
                batch = next(kept[_COURSE])
            except BaseException:  # the user's sampler raised: do not ask it again
                del kept[_COURSE]
                raise
            yield batch


def begin_anew(subject: Subject) -> None:
    """Make shared orders begin again at the sampler's beginning."""
    subject.kept.pop(_COURSE, None)


def _endless(subject: Subject) -> Iterator[Any]:
    given = subject.arguments
    whole = 0
    if given.get("drop_last") and given.get("batch_sampler") is None:
        whole = given.get("batch_size") or 0
    while True:
        none = True
        for batch in subject.batches():
            if whole and len(batch) < whole:
                continue
            none = False
            yield batch
        if none:
            raise NoBatch("its sampler gives no batch")


class BenchLoader:
    """One loader and its iterator. The sandbox's main thread uses it. ``close`` ends the workers at once and is idempotent."""

    def __init__(
        self,
        subject: Subject,
        setting: Setting,
        *,
        order: Iterable[Any] | None = None,
        on_bad_sample: str | None = None,
        generator: Any = None,
    ) -> None:
        """Starts nothing. Raises the loader's own errors about these arguments.

        If there are indices to avoid, samples that raise are tolerated, because others may raise too.
        ``order`` replaces the target's batches of indices, and ``on_bad_sample`` the argument of stoker's loader. The base seed
        comes from ``generator``; the default is torch's global one.
        """
        self.setting = setting
        self.batch_bytes = 0
        self.memory_bytes: int | None = None
        self.opened = False
        self.filled = True
        """Whether workers may have made batches while nobody took any."""
        self.taken = 0
        """Batches taken so far."""
        self._stream = subject.is_stream
        may_have_children()
        os.environ.pop(ENVIRONMENT, None)  # a trial is not the user's run: do not record it
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.loader = _loader(subject, setting, order or EndlessOrder(subject), on_bad_sample, generator)
        self._iterator: Any = None
        self._came = False

    def open(self) -> None:
        """Start the workers, if there are any and they have not started."""
        if self._iterator is None:
            self.opened = True
            with warnings.catch_warnings(), held() if self.setting.workers else nullcontext():
                warnings.simplefilter("ignore")
                self._iterator = iter(self.loader)

    def take(self) -> Any:
        """The next batch. Raises NoBatch, and errors of the user's code."""
        try:
            batch = next(self._iterator)
        except StopIteration:
            if not self._stream or not self._came:
                raise NoBatch("it gives no batch") from None
            self._came = False
            self._iterator = None
            self.open()
            return self.take()
        self._came = True
        self.taken += 1
        return batch

    @property
    def recorder(self) -> Any:
        """The recorder of stoker's loader after ``open``; None for torch's loader."""
        return getattr(self.loader, "_recorder", None)

    @property
    def window(self) -> int:
        """Batches that workers may have made ahead."""
        if not self.setting.workers:
            return 0
        ask = getattr(self.recorder, "window", None)
        return max(self.setting.window, (ask() or 0) if ask is not None else 0)

    @property
    def refills_samples(self) -> bool:
        """Whether worker threads found that ``__getitem__`` returns memory that it fills again."""
        executor = getattr(self._pool(), "executor", None)
        return bool(getattr(executor, "refills_samples", False))

    def pids(self) -> list[int]:
        """The process ids of live workers."""
        workers = getattr(self._pool(), "_workers", None) or ()
        return [pid for pid in (getattr(each, "pid", None) for each in workers) if pid is not None]

    def starting(self) -> bool:
        """Whether some workers are still starting. False if the engine does not say."""
        ask = getattr(getattr(self._pool(), "executor", None), "starting", None)
        return bool(ask()) if ask is not None else False

    def pause(self) -> None:
        """Stop the worker processes. While they fill the window they would take CPUs from the next block."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the worker processes."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.pids():
            with suppress(OSError):
                os.kill(pid, number)

    def close(self) -> None:
        """End the workers without waiting: one may be making a sample that takes a minute."""
        self.resume()
        iterator, self._iterator = self._iterator, None
        if self.setting.engine == "torch":
            if iterator is not None:
                end_workers(iterator)
            self.loader._iterator = None
        else:
            del iterator
            with suppress(Exception):  # an earlier error may have left it unusable
                self.loader.close()

    def _pool(self) -> Any:
        """The object that has the workers: torch's iterator or stoker's pool."""
        if self.setting.engine == "torch":
            return self._iterator
        pools = self.loader._pools()
        return pools[0] if pools else None


def limit_native_threads() -> None:
    """Give native thread pools one thread if this is a fork of the user's process: their other threads do not exist here."""
    spec = sys.modules["__main__"].__spec__
    if spec is None or spec.name != _FRESH:
        single_thread()


def _loader(
    subject: Subject, setting: Setting, order: Iterable[Any], on_bad_sample: str | None, generator: Any
) -> Any:
    from torch.utils.data import DataLoader as TorchLoader

    from stoker.loader import DataLoader

    given = subject.arguments
    arguments: dict[str, Any] = {
        "collate_fn": given.get("collate_fn"),
        "worker_init_fn": given.get("worker_init_fn"),
        "generator": generator,
    }
    if given.get("in_order") is False:
        arguments["in_order"] = False
    if setting.engine == "stoker" and isinstance(subject.loader, DataLoader):
        arguments |= {name: getattr(subject.loader, name) for name in _KEPT}
    arguments |= setting.arguments()
    if on_bad_sample is not None:
        arguments["on_bad_sample"] = on_bad_sample
    dataset = subject.dataset
    if subject.avoid and not subject.is_stream:
        dataset = lenient(dataset)
    kind: Any = TorchLoader if setting.engine == "torch" else DataLoader
    if subject.is_stream:
        size = given.get("batch_size")
        if size is not None:
            arguments["drop_last"] = bool(given.get("drop_last"))
        return kind(dataset, batch_size=size, **arguments)
    if given.get("batch_size") is None and given.get("batch_sampler") is None:
        return kind(dataset, batch_size=None, sampler=order, **arguments)
    return kind(dataset, batch_sampler=order, **arguments)
