"""``threads_per_worker``: how many samples a worker process fetches at once."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Host, Work
from stoker._tools.tune.knobs.executor import threads_take_turns
from stoker._tools.tune.knobs.knob import Knob
from stoker.arguments import DEFAULT_EXECUTOR

if TYPE_CHECKING:
    from stoker._tools.tune.model.candidates import KnobContext

_MOST_THREADS = 16
_LEAST_ROWS = 4
_GAINS = 0.97
"""Threads are added to the best setting where this much of its time is predicted to be left."""


class ThreadsPerWorker(Knob):
    """Tried where samples mostly wait, and only on datasets that several threads may use."""

    name = "threads_per_worker"
    field = "threads"
    default = 1

    def read(self, loader: Any) -> int:
        return int(getattr(loader, self.name, 1) or 1)

    def is_left_open(self, written: str) -> bool:
        return written in ("None", repr(self.default))

    def first(self, baseline: Setting, own: Setting, context: KnobContext) -> list[Setting]:
        rows = context.work.rows
        if not (context.bounds.threads and context.mostly_waits and rows >= _LEAST_ROWS):
            return []
        with_threads = replace(own, threads=min(_MOST_THREADS, rows))
        most = max(1, min(context.most_workers, 2 * math.ceil(context.host.cpus)))
        return [context.enough_workers(with_threads, most)]

    def around(self, best: Setting, tried: Collection[Setting], context: KnobContext) -> list[Setting]:
        found = []
        if context.bounds.threads and context.mostly_waits:
            found += self._wider(best, context)
        if best.threads > 1:
            more = min(2 * best.threads, context.work.rows, 2 * _MOST_THREADS)
            found.append(replace(best, threads=more))
        return found

    def replayed_work(self, setting: Setting, host: Host, work: Work) -> Work:
        return threads_take_turns(host, work) if setting.threads > 1 else work

    def words(self, setting: Setting) -> str:
        return f"{setting.threads} threads each" if setting.threads > 1 else ""

    def phrase(self, setting: Setting) -> str:
        if setting.threads == 1 or setting.kind.threads:
            return ""
        return f"{setting.threads} threads{' each' if setting.workers > 1 else ''}"

    def _wider(self, best: Setting, context: KnobContext) -> list[Setting]:
        """Processes with threads that fetch more samples at once than the best, where that is predicted to be faster."""
        lanes = min(_MOST_THREADS, context.work.rows)
        plain = replace(best, executor=DEFAULT_EXECUTOR, threads=lanes, engine="stoker", split=None)
        few = max(1, math.floor(context.host.cpus))
        most = max(context.most_workers, few)
        wider = [replace(plain, workers=count) for count in (few, 2 * few, 4 * few) if count <= most]
        found = [each for each in wider if each.concurrency > best.concurrency][:1]
        best_ns = context.predicted_ns(best)
        return [context.with_window(each) for each in found if context.predicted_ns(each) < _GAINS * best_ns]
