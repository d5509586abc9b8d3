"""Runs a loader with one setting for a short time, as a training loop does. The loader stays in the sandbox for later blocks.

``subject.trial`` has:

- ``setting``: the setting, as a dict.
- ``seconds`` and ``least``: the block lasts at least so long and takes at least so many batches.
- ``step_ns``, ``step_cpu_ns`` and ``burst``: the training loop's time for a batch, and how many batches it takes at once.
- ``step``: True or a name, to call the user's own step function.
- ``limit_s``: the block ends after this time with the batches that it has.
- ``close``: close the loader at the end. Without ``seconds`` the loader is only closed; without ``setting`` all loaders are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand
from stoker._tools.probes.accelerator import settle
from stoker._tools.probes.batch_bytes import batch_bytes
from stoker._tools.probes.loader_timing import CallTimes, consume
from stoker._tools.sandbox.refusal import failure_of
from stoker._tools.sandbox.subject import Subject
from stoker._tools.sandbox.time_limit import limit
from stoker._tools.tune.instruments.bench_loader import BenchLoader, limit_native_threads
from stoker._tools.tune.instruments.memory import taken_bytes
from stoker._tools.tune.instruments.own_record import made_since
from stoker._tools.tune.instruments.resource_usage import ResourceUsage, UsageMeter, between
from stoker._tools.tune.instruments.step import SimulatedStep, lateness_ns, step_of
from stoker._tools.tune.model.block import Block

_LOADERS, _AVOID = "benches", "bench_loaders_avoid"
_FREE = "free"
"""The key that says that workers are no longer paused between blocks."""
_LIMIT_S = 3600.0
_LOOK_S = 1.5
_WARM_SHARE = 0.15


def probe(subject: Subject) -> Block:
    """Run the block. If the setting or the user's code fails, the block has a ``failure`` and the loader is closed."""
    trial = subject.trial
    given = trial.get("setting")
    if given is None:
        close_all(subject)
        return Block(Setting(), 0, 0, 0)
    setting = Setting.restored(given)
    benches = _benches(subject)
    if trial.get("close") and not trial.get("seconds"):
        _drop(benches, setting)
        return Block(setting, 0, 0, 0)
    limit_native_threads()
    try:
        bench = benches.get(setting)
        if bench is None:
            bench = benches[setting] = BenchLoader(subject, setting)
        look = _Look(subject, bench)
        with limit(float(trial.get("limit_s", _LIMIT_S)), look_s=_LOOK_S, look=look) as deadline_ns:
            block = _run(subject, bench, deadline_ns)
    except Exception as error:
        _drop(benches, setting)
        return Block(setting, 0, 0, 0, failure=failure_of(error))
    except BaseException:
        _drop(benches, setting)
        raise
    if trial.get("close"):
        _drop(benches, setting)
    return block


class _Look:
    """Called at intervals during a block. If no batch came in between, it resumes all paused workers.

    A paused worker may hold a lock that the others need. If workers that delivered before get stuck, pausing ends for good.
    Otherwise the workers may only be slow to start.
    """

    def __init__(self, subject: Subject, bench: BenchLoader) -> None:
        self._subject, self._bench = subject, bench
        self._taken = -1

    def __call__(self) -> None:
        if self._taken == self._bench.taken and not self._subject.kept.get(_FREE):
            self._subject.kept[_FREE] = self._taken > 0
            for each in _benches(self._subject).values():
                if each is not self._bench:
                    each.resume()
                    each.filled = True
        self._taken = self._bench.taken


def close_all(subject: Subject) -> None:
    """Close all loaders of earlier blocks."""
    benches = _benches(subject)
    for setting in list(benches):
        _drop(benches, setting)


def _benches(subject: Subject) -> dict[Setting, BenchLoader]:
    found: dict[Setting, BenchLoader] = subject.kept.setdefault(_LOADERS, {})
    if subject.kept.setdefault(_AVOID, subject.avoid) != subject.avoid:  # these loaders use other indices
        for setting in list(found):
            _drop(found, setting)
        subject.kept[_AVOID] = subject.avoid
    return found


def _drop(benches: dict[Setting, BenchLoader], setting: Setting) -> None:
    bench = benches.pop(setting, None)
    if bench is not None:
        bench.close()


def _run(subject: Subject, bench: BenchLoader, deadline_ns: int) -> Block:
    trial, setting = subject.trial, bench.setting
    seconds, burst = float(trial.get("seconds", 1.0)), max(1, int(trial.get("burst", 1)))
    step = _step(subject)

    def alive() -> None:
        subject.touch(None)

    resumed_ns = time.monotonic_ns()
    bench.resume()
    first_ns = _first(bench)
    _level(bench, step, seconds, burst, deadline_ns, alive)
    meter: UsageMeter = subject.kept.setdefault("meter", UsageMeter())
    threads = setting.kind.threads
    settle()
    before = meter.read(bench.pids(), threads=threads)
    began_ns = time.monotonic_ns()
    times = consume(
        bench.take, step, seconds=seconds, least=max(1, int(trial.get("least", 1))), limit_ns=deadline_ns,
        burst=burst, alive=alive,
    )  # fmt: skip
    settle()
    after = meter.read(bench.pids(), threads=threads)
    bench.filled = bool(subject.kept.get(_FREE)) or not bench.pids()
    if not bench.filled:
        bench.pause()
    if bench.memory_bytes is None:
        bench.memory_bytes = taken_bytes(bench)
    return _block(
        bench,
        times,
        between(before, after, setting.concurrency),
        first_ns,
        _recorded(bench, began_ns, resumed_ns),
    )


def _first(bench: BenchLoader) -> int | None:
    """Take the first batch. The time includes the workers' start; None if an earlier block took it."""
    if bench.opened:
        return None
    began_ns = time.perf_counter_ns()
    bench.open()
    batch = bench.take()
    took_ns = time.perf_counter_ns() - began_ns
    bench.batch_bytes = batch_bytes(batch)
    return took_ns


def _level(
    bench: BenchLoader, step: Callable[[Any], Any] | None, seconds: float, burst: int, deadline_ns: int, alive: Callable[[], None]
) -> None:  # fmt: skip
    """Bring the loader into a steady state before the block, for ``seconds`` at most.

    Workers may have filled the window before the block. A loader that is too slow would seem fast until that is used up.
    So the window is emptied first. A loader that is faster than the loop fills it again at once.
    The window of a paused loader is unchanged; only the batches that were in progress do not count.
    """
    full = bench.filled
    now_ns = time.perf_counter_ns()
    last_ns = min(deadline_ns, now_ns + int(seconds * 1e9))
    warm_ns = min(deadline_ns, now_ns + int(_WARM_SHARE * seconds * 1e9))
    left = bench.window if full else 0
    while (left > 0 or bench.starting()) and time.perf_counter_ns() < last_ns:
        bench.take()
        left -= 1
    alive()
    if full and step is None:
        return
    for number in range(max(1, bench.setting.workers)):
        if number and time.perf_counter_ns() >= warm_ns:
            break
        consume(bench.take, step, seconds=0, least=1, limit_ns=deadline_ns, burst=burst)
    alive()


def _step(subject: Subject) -> Callable[[Any], Any] | None:
    trial = subject.trial
    if trial.get("step"):
        return step_of(subject)
    demand = Demand(int(trial.get("step_ns", 0)), int(trial.get("step_cpu_ns", 0)))
    if not demand.step_ns:
        return None
    if "lateness_ns" not in subject.kept:
        subject.kept["lateness_ns"] = lateness_ns()
    return SimulatedStep(demand, subject.kept["lateness_ns"])


def _block(
    bench: BenchLoader,
    times: CallTimes,
    usage: ResourceUsage,
    first_ns: int | None,
    recorded: tuple[tuple[int, ...], float | None],
) -> Block:
    batches, wall_ns, wait_ns = times.counted(max(1, bench.setting.workers))
    share = batches / len(times.asked_ns)
    batch_ns, busy = recorded
    return Block(
        setting=bench.setting,
        batches=batches,
        wall_ns=wall_ns,
        wait_ns=wait_ns,
        batch_ns=batch_ns,
        first_ns=first_ns,
        parent_cpu_ns=int(usage.parent_cpu_ns * share),
        job_cpu_ns=int((usage.parent_cpu_ns + usage.workers_cpu_ns) * share),
        runq_share=usage.runq_share,
        foreign_cpus=usage.foreign_cpus,
        pressure=usage.pressure,
        busy=busy,
        memory_bytes=bench.memory_bytes,
    )


def _recorded(bench: BenchLoader, began_ns: int, resumed_ns: int) -> tuple[tuple[int, ...], float | None]:
    """The times of the batches since then and the workers' busy share, from the engine's record."""
    if bench.recorder is None:
        return (), None
    record = bench.recorder.record(weigh=False)
    base_ns = record.run.began_ns
    return made_since(
        record.loaders[0].steps,
        began_ns - base_ns,
        max(1, bench.setting.workers),
        resumed_ns=resumed_ns - base_ns,
    )
