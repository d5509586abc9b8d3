"""Keeps one recorder for each of torch's loaders, from its first ``iter()`` until the process ends.

A script that makes its loader anew for every epoch, at the same line and with the same options, goes on in the same record.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any

from torch.utils.data import IterableDataset

from stoker._record.call_site import site
from stoker._record.dataset_identity import length_of
from stoker._record.journal import sink_from_environment
from stoker._record.recorder import Recorder
from stoker._record.schema import Option
from stoker.arguments import ARGUMENTS, DEFAULT_EXECUTOR, NO_WORKERS

_MOST_OPEN = 64
"""Recorders that are open at a time. Loaders beyond that are not measured."""

_MOST_IDLE = 16
"""Of these, recorders whose loader is gone."""

_NOT_PLAIN = ("prefetch_factor", "sampler", "collate_fn")
_OPTIONS = tuple(
    (each.name, each.default)
    for each in ARGUMENTS
    if each.recorded and each.owner == "torch" and each.name not in _NOT_PLAIN
)
"""Arguments of torch's loader that are recorded as they are, and their defaults."""

_AS_IT_IS = "as the loader has it"


@dataclass(slots=True)
class RecordCounts:
    """What is counted for one record."""

    epochs: int = 0
    deaths: int = 0

    def counts(self) -> dict[str, int]:
        """For the recorder."""
        return {"worker_deaths": self.deaths}


class RecordedLoader:
    """The record of one loader, shared by all its iterators. It ends with the last of loader and iterators."""

    def __init__(self, recorder: Recorder, tally: RecordCounts) -> None:
        self.recorder = recorder
        self._tally = tally

    def epoch(self) -> int:
        """The number of an epoch that begins."""
        self._tally.epochs += 1
        return self._tally.epochs

    def event(self, kind: str, reason: str) -> None:
        """Something happened."""
        self._tally.deaths += kind == "worker_died"
        self.recorder.event(kind, reason)


class RecordedLoaders:
    """All accounts of this process. Any thread; what runs in garbage collections only appends to deques."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._sites: dict[int, tuple[Any, str | None]] = {}
        self._accounts: dict[int, tuple[Any, RecordedLoader]] = {}
        self._open: list[Recorder] = []
        self._idle: dict[Any, tuple[Recorder, RecordCounts]] = {}
        self._ended: deque[tuple[Any, Recorder, RecordCounts]] = deque()
        self._full = False

    def made(self, loader: Any) -> None:
        """A loader was made: remember where."""
        key = id(loader)
        sites = self._sites
        sites[key] = (weakref.ref(loader, lambda _: sites.pop(key, None) and None), site(2))

    def account(self, loader: Any) -> RecordedLoader | None:
        """The loader's; opened when it has none. None when there are too many."""
        with self._lock:
            found = self._accounts.get(id(loader))
            if found is not None:
                return found[1]
            self._collect()
            key = _key(loader, self._sites.get(id(loader), (None, None))[1] or site(2))
            idle = self._idle.pop(key, None)
            if idle is None:
                if len(self._open) >= _MOST_OPEN:
                    self._say_full()
                    return None
                recorder, tally = idle = _recorder(key, loader), RecordCounts()
                recorder.connect(counts=tally.counts)
                self._open.append(recorder)
            account = RecordedLoader(*idle)
            weakref.finalize(account, self._ended.append, (key, *idle)).atexit = False
            number, accounts = id(loader), self._accounts
            accounts[number] = (weakref.ref(loader, lambda _: accounts.pop(number, None) and None), account)
            return account

    def close(self) -> None:
        """Close all records. In a forked child they are the parent's, and nothing happens."""
        if self._pid != os.getpid():
            return
        with self._lock:
            recorders, self._open = self._open, []
            self._accounts.clear()
            self._sites.clear()
            self._idle.clear()
        for recorder in recorders:
            recorder.close()

    def _collect(self) -> None:
        """Recorders whose loader is gone wait for another one from the same place, the latest of them."""
        while self._ended:
            key, recorder, tally = self._ended.popleft()
            if recorder in self._open:
                earlier = self._idle.pop(key, None)
                self._idle[key] = recorder, tally
                if earlier is not None:
                    self._close(earlier[0])
        while len(self._idle) > _MOST_IDLE:
            self._close(self._idle.pop(next(iter(self._idle)))[0])

    def _close(self, recorder: Recorder) -> None:
        self._open.remove(recorder)
        recorder.close()

    def _say_full(self) -> None:
        if not self._full:
            self._full = True
            logging.getLogger("stoker").warning(
                "more than %d loaders at a time: those beyond are not measured", _MOST_OPEN
            )


def _key(loader: Any, made_at: str | None) -> tuple[str | None, str, tuple[tuple[str, Any, str], ...]]:
    """Where it was made, of what, and how: options as plain values, each with why it has its value."""
    dataset = type(getattr(loader, "dataset", None))
    workers = getattr(loader, "num_workers", 0)
    options = [(name, *_option(getattr(loader, name, None), default)) for name, default in _OPTIONS]
    options.append(
        ("prefetch_factor", *_option(getattr(loader, "prefetch_factor", None), 2 if workers else None))
    )
    sampler, collate = getattr(loader, "sampler", None), getattr(loader, "collate_fn", None)
    options.append(("sampler", type(sampler).__name__, _AS_IT_IS))
    options.append(("collate_fn", getattr(collate, "__qualname__", type(collate).__name__), _AS_IT_IS))
    if workers:
        context = getattr(loader, "multiprocessing_context", None)
        # A rank that was spawned spawns its workers too: what the process uses is not always the platform's way.
        used = (
            multiprocessing.get_start_method(allow_none=True)
            if context is None
            else context.get_start_method()
        )
        options.append(("start_method", used, "the platform's default" if context is None else "given"))
    return made_at, f"{dataset.__module__}.{dataset.__qualname__}", tuple(options)


def _recorder(key: Any, loader: Any) -> Recorder:
    made_at, dataset, options = key
    dataset_here = getattr(loader, "dataset", None)
    return Recorder(
        name="loader",
        engine="torch",
        executor=DEFAULT_EXECUTOR if getattr(loader, "num_workers", 0) else NO_WORKERS,
        dataset=dataset,
        site=made_at,
        options={name: Option(value, why) for name, value, why in options},
        sink=sink_from_environment(),
        samples=None if isinstance(dataset_here, IterableDataset) else length_of(dataset_here),
    )


def _option(value: Any, default: Any) -> tuple[Any, str]:
    plain = value if value is None or isinstance(value, bool | int | float | str) else repr(value)[:200]
    return plain, "default" if plain == default else "given"
