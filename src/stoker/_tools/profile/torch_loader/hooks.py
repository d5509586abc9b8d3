"""The hooks around methods of torch's loader and iterators. Each calls torch's own method and notes the time.

    DataLoader.__init__            where in the script it was made
    DataLoader._get_iterator       iter(); the ring that workers write to
    _reset                         iter() again, with persistent workers
    _next_data                     next()
    _process_data, _try_put_index  a batch has come; a task goes out
    _next_index                    the sampler, without workers
    _worker_loop                   what worker processes run (``torch_worker``)

Iterators that others have derived from torch's base (torchdata's) are timed from outside: ``__init__``, ``_reset``, ``_next_data``.
``__next__`` and the ``__init__`` of torch's own are left alone: warnings there name the line of their caller.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from torch.utils.data import get_worker_info

from stoker._record.instruments import is_ours
from stoker._tools.profile.torch_loader.iterator_watch import InlineWatch, IteratorWatch, WaitsWatch
from stoker._tools.profile.torch_loader.recorders import RecordedLoader, RecordedLoaders
from stoker._tools.profile.torch_loader.task_ring import TaskRing
from stoker._tools.profile.torch_loader.worker import making
from stoker._tools.profile.torch_loader.workers_watch import WorkersWatch

_clock = time.monotonic_ns
_PLACES = 64
Method = Callable[..., Any]


class Hooks:
    """Makes the hooks and keeps what they watch. Hooks run on whatever thread makes an iterator or iterates.

    What is ours may fail: that iterator is then measured no further, and torch's method has been called all the same.
    """

    def __init__(self, meet_loader: Callable[[type], None]) -> None:
        self._meet_loader = meet_loader
        self.books = RecordedLoaders()
        self.plugged = True
        self._watches: dict[int, tuple[Any, Any]] = {}
        """By the iterator's id: a weak reference that removes the entry, and its Watch."""
        self._loose: deque[IteratorWatch] = deque()
        """Of iterators that were dropped. Garbage collections add to it, so it is tidied in better places."""

    def close(self) -> None:
        """Iterators under way go on unmeasured; records are complete. Idempotent."""
        self.plugged = False
        self._loose.extend(watch for _, watch in self._watches.values())
        self._watches.clear()
        self._tidy()
        self.books.close()

    def forget(self) -> None:
        """In a forked child: all that was there is the parent's."""
        self._watches.clear()
        self._loose.clear()
        self.books = RecordedLoaders()

    # The loader

    def init(self, theirs: Method) -> Method:
        def hook(loader: Any, *args: Any, **kwargs: Any) -> None:
            theirs(loader, *args, **kwargs)
            if self.plugged:
                self._guarded(None, self.books.made, loader)
                self._guarded(None, self._meet_loader, type(loader))

        return hook

    def get_iterator(self, theirs: Method) -> Method:
        def hook(loader: Any) -> Any:
            began_ns = _clock()
            account = self._guarded(None, self._account, loader)
            outer = (making.loader, making.account, making.ring)
            ring = self._guarded(None, _ring, loader) if account is not None else None
            making.loader, making.account, making.ring = loader, account, ring
            try:
                iterator = theirs(loader)
            finally:
                making.loader, making.account, making.ring = outer
                if ring is not None:
                    ring.settle()
            if account is not None:
                self._guarded(None, self._begin, iterator, account, began_ns)
            return iterator

        return hook

    def own_get_iterator(self, theirs: Method) -> Method:
        """For a subclass that makes torch's iterators itself, as litdata's does."""

        def hook(loader: Any) -> Any:
            began_ns = _clock()
            making.begun = 0
            iterator = theirs(loader)
            self._guarded(None, self._made_elsewhere, iterator, loader, began_ns)
            return iterator

        return hook

    def reset(self, theirs: Method) -> Method:
        def hook(iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
            first = args[0] if args else kwargs.get("first_iter", False)
            if first:
                self._guarded(None, self._staffed, iterator, loader)
                theirs(iterator, loader, *args, **kwargs)
                return
            began_ns = _clock()
            watch = self._watch_of(iterator)
            if watch is not None:
                self._guarded(iterator, watch.again)
            theirs(iterator, loader, *args, **kwargs)
            if watch is not None:
                self._guarded(iterator, watch.opened, began_ns, _clock())

        return hook

    # Iterators with workers

    def next_data(self, theirs: Method) -> Method:
        watches = self._watches

        def hook(iterator: Any) -> Any:
            found = watches.get(id(iterator))
            if found is None:
                return theirs(iterator)
            watch = found[1]
            self._guarded(iterator, watch.asked)
            try:
                batch = theirs(iterator)
            except BaseException as error:
                self._guarded(iterator, self._failed, iterator, watch, error)
                raise
            self._guarded(iterator, watch.given)
            if watch.weighs:
                self._guarded(iterator, watch.weigh, batch)
            return batch

        return hook

    def process_data(self, theirs: Method) -> Method:
        watches = self._watches

        def hook(iterator: Any, *args: Any, **kwargs: Any) -> Any:
            found = watches.get(id(iterator))
            if found is None or len(args) != 2:
                return theirs(iterator, *args, **kwargs)
            self._guarded(iterator, found[1].got, args[1])
            batch = theirs(iterator, *args, **kwargs)
            self._guarded(iterator, found[1].planned)
            return batch

        return hook

    def try_put_index(self, theirs: Method) -> Method:
        watches = self._watches

        def hook(iterator: Any) -> None:
            found = watches.get(id(iterator))
            if found is None:
                theirs(iterator)
                return
            idx = self._guarded(iterator, found[1].dispatching, iterator)
            theirs(iterator)
            self._guarded(iterator, found[1].dispatched, iterator, idx)

        return hook

    # Iterators without

    def next_data_inline(self, theirs: Method) -> Method:
        watches = self._watches

        def hook(iterator: Any) -> Any:
            found = watches.get(id(iterator))
            if found is None:
                return theirs(iterator)
            watch: InlineWatch = found[1]
            self._guarded(iterator, watch.asked)
            fetcher = watch.fetcher
            collate_fn, fetcher.collate_fn = fetcher.collate_fn, watch.clock.collate
            try:
                batch = theirs(iterator)
            except BaseException as error:
                self._guarded(iterator, self._failed, iterator, watch, error)
                raise
            finally:
                fetcher.collate_fn = collate_fn
            self._guarded(iterator, watch.given)
            if watch.weighs:
                self._guarded(iterator, watch.weigh, batch)
            return batch

        return hook

    def next_index(self, theirs: Method) -> Method:
        watches = self._watches

        def hook(iterator: Any) -> Any:
            indices = theirs(iterator)
            found = watches.get(id(iterator))
            if found is None:
                return indices
            seen = self._guarded(iterator, found[1].planned, indices)
            return indices if seen is None else seen

        return hook

    # Iterators of others

    def init_iterator(self, theirs: Method) -> Method:
        def hook(iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
            began_ns = _clock()
            theirs(iterator, loader, *args, **kwargs)
            self._guarded(None, self._adopt, iterator, loader, began_ns)

        return hook

    # What is ours

    def _guarded(self, iterator: Any, call: Method, *args: Any) -> Any:
        """Call what is ours. When it fails, that is said once, the iterator is not watched any more, and the answer is None."""
        try:
            return call(*args)
        except Exception as error:
            if not is_ours(error):
                raise
            watched = self._watches.pop(id(iterator), None)
            if watched is not None:
                self._loose.append(watched[1])
            if watched is not None or iterator is None:
                # In words: whoever keeps a logged error keeps the iterator that is in its traceback.
                said = f"{type(error).__name__}: {error}"
                logging.getLogger("stoker").warning("a loader is not measured any further: %s", said)
            return None

    def _account(self, loader: Any) -> RecordedLoader | None:
        """None in workers, whose loaders are part of what the outer loader fetches."""
        if not self.plugged or get_worker_info() is not None:
            return None
        self._tidy()
        return self.books.account(loader)

    def _begin(self, iterator: Any, account: RecordedLoader, began_ns: int) -> None:
        making.begun = id(iterator)
        if hasattr(iterator, "_dataset_fetcher"):
            self._watch(iterator, InlineWatch(account, iterator))
        account.recorder.opened(began_ns, _clock())

    def _made_elsewhere(self, iterator: Any, loader: Any, began_ns: int) -> None:
        """An override has returned an iterator: nothing is left to do if it came from torch's method, or is stoker's."""
        if id(iterator) == making.begun or not hasattr(iterator, "_next_data") or _is_stokers(type(iterator)):
            return
        account = self._account(loader)
        if account is not None and (
            self._watch_of(iterator) is not None or hasattr(iterator, "_dataset_fetcher")
        ):
            self._begin(iterator, account, began_ns)

    def _staffed(self, iterator: Any, loader: Any) -> None:
        """An iterator has started its workers and is about to send them tasks."""
        if making.loader is loader:
            account, ring = making.account, making.ring
        else:  # somebody made the iterator without the loader's help: its workers do not know us
            account, ring = self._account(loader), None
        if account is not None:
            self._watch(iterator, WorkersWatch(account, iterator, ring))

    def _adopt(self, iterator: Any, loader: Any, began_ns: int) -> None:
        making.begun = id(iterator)
        account = self._account(loader)
        if account is not None:
            if self._watch_of(iterator) is None:
                self._watch(iterator, WaitsWatch(account))
            account.recorder.opened(began_ns, _clock())

    def _watch(self, iterator: Any, watch: IteratorWatch) -> None:
        key, watches, loose = id(iterator), self._watches, self._loose

        def gone(_: Any) -> None:
            found = watches.pop(key, None)
            if found is not None:
                loose.append(found[1])

        watches[key] = (weakref.ref(iterator, gone), watch)

    def _watch_of(self, iterator: Any) -> Any:
        found = self._watches.get(id(iterator))
        return None if found is None else found[1]

    def _failed(self, iterator: Any, watch: IteratorWatch, error: BaseException) -> None:
        watch.failed(error)
        if isinstance(error, StopIteration) and not iterator._persistent_workers:
            self._watches.pop(id(iterator), None)
            watch.close()

    def _tidy(self) -> None:
        while self._loose:
            self._loose.popleft().close()


def _is_stokers(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "stoker"


def _ring(loader: Any) -> TaskRing | None:
    """For the workers of an iterator that is about to be made; None when it will have none.

    With places for the tasks that a worker has not finished. All of them may be one worker's, when the streams of the others have
    ended: beyond what is usual, the oldest are then not known.
    """
    if loader.num_workers == 0:
        return None
    factor = loader.prefetch_factor or 2
    return TaskRing.create(loader.num_workers, min(loader.num_workers * factor, max(2 * factor, _PLACES)) + 1)
