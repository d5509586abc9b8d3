"""Runs a loader with one setting for a moment, as a training loop would. In the sandbox itself: the loader stays for later blocks.

``subject.trial``: ``setting`` (as a dict); ``seconds`` and ``least`` batches, both of which are reached; ``step_ns``,
``step_cpu_ns`` and ``burst`` (what the training loop takes, a batch); ``step``: call the user's own step function (True, or where
it is); ``limit_s``, after which it ends with what there is; ``close``: the loader is closed at the end. ``close`` without
``seconds`` closes it, or without ``setting`` all, and nothing is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand
from stoker._tools.probes.accelerator import settle
from stoker._tools.probes.loader_timing import Laps, consume
from stoker._tools.sandbox.refusal import failure_of
from stoker._tools.sandbox.subject import Subject
from stoker._tools.sandbox.time_limit import limit
from stoker._tools.tune.instruments.bench_loader import Rig, calm_fork
from stoker._tools.tune.instruments.memory import batch_bytes, taken_bytes
from stoker._tools.tune.instruments.own_record import made_since
from stoker._tools.tune.instruments.resource_usage import Toll, Tolls, between
from stoker._tools.tune.instruments.step import Stand, lateness_ns, step_of
from stoker._tools.tune.model.block import Block

_RIGS, _AVOID = "rigs", "rigs_avoid"
_FREE = "free"
"""Kept once pausing has been given up."""
_LIMIT_S = 3600.0
_LOOK_S = 1.5
_WARM_SHARE = 0.15


def probe(subject: Subject) -> Block:
    """Never raises for what the setting or the user's code does: that is the block's ``failure``, and the loader is closed."""
    trial = subject.trial
    given = trial.get("setting")
    if given is None:
        close_all(subject)
        return Block(Setting(), 0, 0, 0)
    setting = Setting.restored(given)
    rigs = _rigs(subject)
    if trial.get("close") and not trial.get("seconds"):
        _drop(rigs, setting)
        return Block(setting, 0, 0, 0)
    calm_fork()
    try:
        rig = rigs.get(setting)
        if rig is None:
            rig = rigs[setting] = Rig(subject, setting)
        look = _Look(subject, rig)
        with limit(float(trial.get("limit_s", _LIMIT_S)), look_s=_LOOK_S, look=look) as deadline_ns:
            block = _run(subject, rig, deadline_ns)
    except Exception as error:
        _drop(rigs, setting)
        return Block(setting, 0, 0, 0, failure=failure_of(error))
    except BaseException:
        _drop(rigs, setting)
        raise
    if trial.get("close"):
        _drop(rigs, setting)
    return block


class _Look:
    """Called when some time has passed. Where no batch has come since, a lock that a paused worker holds may be why: all go on.

    If that happens to workers that have delivered before, nobody is paused any more; workers may just take long to start.
    """

    def __init__(self, subject: Subject, rig: Rig) -> None:
        self._subject, self._rig = subject, rig
        self._taken = -1

    def __call__(self) -> None:
        if self._taken == self._rig.taken and not self._subject.kept.get(_FREE):
            self._subject.kept[_FREE] = self._taken > 0
            for each in _rigs(self._subject).values():
                if each is not self._rig:
                    each.resume()
                    each.filled = True
        self._taken = self._rig.taken


def close_all(subject: Subject) -> None:
    """End all loaders that blocks have left."""
    rigs = _rigs(subject)
    for setting in list(rigs):
        _drop(rigs, setting)


def _rigs(subject: Subject) -> dict[Setting, Rig]:
    found: dict[Setting, Rig] = subject.kept.setdefault(_RIGS, {})
    if subject.kept.setdefault(_AVOID, subject.avoid) != subject.avoid:  # they go by other indices
        for setting in list(found):
            _drop(found, setting)
        subject.kept[_AVOID] = subject.avoid
    return found


def _drop(rigs: dict[Setting, Rig], setting: Setting) -> None:
    rig = rigs.pop(setting, None)
    if rig is not None:
        rig.close()


def _run(subject: Subject, rig: Rig, deadline_ns: int) -> Block:
    trial, setting = subject.trial, rig.setting
    seconds, burst = float(trial.get("seconds", 1.0)), max(1, int(trial.get("burst", 1)))
    step = _step(subject)

    def alive() -> None:
        subject.touch(None)

    resumed_ns = time.monotonic_ns()
    rig.resume()
    first_ns = _first(rig)
    _level(rig, step, seconds, burst, deadline_ns, alive)
    tolls: Tolls = subject.kept.setdefault("tolls", Tolls())
    threads = setting.kind.threads
    settle()
    before = tolls.read(rig.pids(), threads=threads)
    began_ns = time.monotonic_ns()
    laps = consume(
        rig.take, step, seconds=seconds, least=max(1, int(trial.get("least", 1))), limit_ns=deadline_ns,
        burst=burst, alive=alive,
    )  # fmt: skip
    settle()
    after = tolls.read(rig.pids(), threads=threads)
    rig.filled = bool(subject.kept.get(_FREE)) or not rig.pids()
    if not rig.filled:
        rig.pause()
    if rig.memory_bytes is None:
        rig.memory_bytes = taken_bytes(rig)
    return _block(
        rig, laps, between(before, after, setting.concurrency), first_ns, _told(rig, began_ns, resumed_ns)
    )


def _first(rig: Rig) -> int | None:
    """Have the first batch come, workers' start included; None when it has come in an earlier block."""
    if rig.opened:
        return None
    began_ns = time.perf_counter_ns()
    rig.open()
    batch = rig.take()
    took_ns = time.perf_counter_ns() - began_ns
    rig.batch_bytes = batch_bytes(batch)
    return took_ns


def _level(
    rig: Rig, step: Callable[[Any], Any] | None, seconds: float, burst: int, deadline_ns: int, alive: Callable[[], None]
) -> None:  # fmt: skip
    """Come to where blocks are alike, for ``seconds`` at most: batches may take long.

    The window may have been filled while nobody looked. Then a loader that is too slow would look fast enough until it is used
    up, so it is emptied, as fast as it goes; it fills up again at once where the loader is faster than the loop. A rig that was
    paused is as it was: only what was on its way then does not count.
    """
    full = rig.filled
    now_ns = time.perf_counter_ns()
    last_ns = min(deadline_ns, now_ns + int(seconds * 1e9))
    warm_ns = min(deadline_ns, now_ns + int(_WARM_SHARE * seconds * 1e9))
    left = rig.window if full else 0
    while (left > 0 or rig.starting()) and time.perf_counter_ns() < last_ns:
        rig.take()
        left -= 1
    alive()
    if full and step is None:
        return
    for number in range(max(1, rig.setting.workers)):
        if number and time.perf_counter_ns() >= warm_ns:
            break
        consume(rig.take, step, seconds=0, least=1, limit_ns=deadline_ns, burst=burst)
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
    return Stand(demand, subject.kept["lateness_ns"])


def _block(
    rig: Rig, laps: Laps, toll: Toll, first_ns: int | None, told: tuple[tuple[int, ...], float | None]
) -> Block:
    batches, wall_ns, wait_ns = laps.counted(max(1, rig.setting.workers))
    share = batches / len(laps.asked_ns)
    batch_ns, busy = told
    return Block(
        setting=rig.setting,
        batches=batches,
        wall_ns=wall_ns,
        wait_ns=wait_ns,
        batch_ns=batch_ns,
        first_ns=first_ns,
        parent_cpu_ns=int(toll.parent_cpu_ns * share),
        job_cpu_ns=int((toll.parent_cpu_ns + toll.workers_cpu_ns) * share),
        runq_share=toll.runq_share,
        foreign_cpus=toll.foreign_cpus,
        pressure=toll.pressure,
        busy=busy,
        memory_bytes=rig.memory_bytes,
    )


def _told(rig: Rig, began_ns: int, resumed_ns: int) -> tuple[tuple[int, ...], float | None]:
    """What the engine's record says of the batches that were handed over since: their times, and how busy the workers were."""
    if rig.recorder is None:
        return (), None
    record = rig.recorder.record(weigh=False)
    base_ns = record.run.began_ns
    return made_since(
        record.loaders[0].steps,
        began_ns - base_ns,
        max(1, rig.setting.workers),
        resumed_ns=resumed_ns - base_ns,
    )
