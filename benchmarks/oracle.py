"""``python -m benchmarks.oracle``: how far is the replay oracle off? One worker is looked at; settings are replayed, then run.

Settings are run several times and their median counts. The machine should have nothing else to do: the oracle knows of no
neighbours. ``--json`` writes all points.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import stoker
from benchmarks.machine import cores
from stoker._runtime.simulation.predictions import error_of
from stoker._runtime.simulation.replay import replay_setting
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Work
from stoker._tools.tune.instruments.own_record import made_batches

_ROWS = 16
_PERIOD = 64
"""Batches after which times repeat: any stretch of a run is like any other."""
_PROBE_S = 1.2
_KINDS = ("sleep", "stragglers", "uneven", "compute", "mixed")


class Samples(Dataset[Any]):
    """Rows that wait, compute, or both; of stragglers some batches, of uneven ones all take their own time."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        chance = random.Random(index // _ROWS % _PERIOD)
        if self.kind == "sleep":
            time.sleep(0.0005)
        elif self.kind == "stragglers":
            time.sleep(0.06 if index % _ROWS == 0 and chance.random() < 0.06 else 0.0003)
        elif self.kind == "uneven":
            time.sleep(chance.expovariate(1.0) * 0.0005)
        elif self.kind == "compute":
            _compute(0.0004)
        else:
            time.sleep(0.0004)
            _compute(0.0003)
        return torch.full((256,), float(index))


def settings(kind: str) -> list[tuple[Setting, bool, float]]:
    """Settings, whether in order, and steps in seconds. Of what computes none with more than two workers per core."""
    plain = [
        (Setting(0), True, 0.003),
        *((Setting(count, 2, split=False), True, 0.0) for count in (1, 2, 4, 8)),
        (Setting(2, 2, split=False), True, 0.003),
        *((Setting(4, depth, split=False), True, 0.002) for depth in (1, 2, 4)),
        (Setting(4, 2, split=False), False, 0.002),
        (Setting(8, 2, split=False), True, 0.001),
        (Setting(8, 8, split=False), True, 0.001),
    ]
    if kind in ("compute", "mixed"):
        return [each for each in plain if each[0].workers <= 2 * cores()]
    more = [
        Setting(2, 2, split=False, threads=4),
        Setting(4, 2, executor="thread"),
        Setting(4),
        Setting(4, 2, engine="torch"),
    ]
    return plain + [(each, True, step_s) for each in more for step_s in (0.0, 0.003)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--kind", action="append", choices=_KINDS, help="only this one; may be given several times"
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.6, help="of one run")
    parser.add_argument("--json", type=Path, metavar="FILE")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found: list[dict[str, Any]] = []
    for kind in asked.kind or _KINDS:
        points = _points(kind, asked.repeat, asked.seconds)
        found += points
        _tell(kind, points)
    _tell("all", found)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))


def _points(kind: str, repeat: int, seconds: float) -> list[dict[str, Any]]:
    work = min((_work(kind) for _ in range(2)), key=lambda each: each.typical_ns)
    found = []
    for setting, in_order, step_s in settings(kind):
        measured_ns = median(_run(kind, setting, in_order, step_s, seconds) for _ in range(repeat))
        demand = Demand(int(_slept(step_s) * 1e9))
        told = replay_setting(work, demand, setting, cores(), in_order=in_order)
        off = told.interval_ns / measured_ns - 1
        found.append(
            {
                "kind": kind,
                "setting": setting.as_dict(),
                "in_order": in_order,
                "step_s": step_s,
                "measured_ns": measured_ns,
                "replayed_ns": told.interval_ns,
            }
        )
        name = f"{setting.engine} {setting.executor} {setting.workers}×{setting.prefetch}, {setting.threads} threads"
        order = "in order" if in_order else "any order"
        print(
            f"{kind:10} {name:40} {order:9} step {step_s * 1e3:3.0f} ms: {measured_ns / 1e6:7.3f} ms, "
            f"replayed {told.interval_ns / 1e6:7.3f} ({off:+.1%})",
            flush=True,
        )
    return found


def _tell(name: str, points: list[dict[str, Any]]) -> None:
    told = error_of((each["setting"], each["replayed_ns"], each["measured_ns"]) for each in points)
    print(
        f"{name}: {told['points']} points, median error {told['median']:.1%}, worst {told['worst']:.1%}, bias {told['bias']:+.1%}"
    )


def _loader(kind: str, setting: Setting, in_order: bool) -> DataLoader[Any]:
    made_by = DataLoader if setting.engine == "torch" else stoker.DataLoader
    return made_by(Samples(kind), batch_size=_ROWS, in_order=in_order, **setting.arguments())


def _run(kind: str, setting: Setting, in_order: bool, step_s: float, seconds: float) -> float:
    """Nanoseconds between two batches, beyond the first windows."""
    loader = _loader(kind, setting, in_order)
    batches = iter(loader)
    try:
        for _ in range(3 * setting.window):
            next(batches)
            _step(step_s)
        began, count = time.perf_counter(), 0
        while (spent := time.perf_counter() - began) < seconds or count < 20:
            next(batches)
            _step(step_s)
            count += 1
        return spent / count * 1e9
    finally:
        del batches
        if isinstance(loader, stoker.DataLoader):
            loader.close()


def _work(kind: str) -> Work:
    """What a batch takes one worker, as the tuner's probe would see it."""
    with stoker.DataLoader(
        Samples(kind), batch_size=_ROWS, **Setting(1, 4, split=False).arguments()
    ) as loader:
        batches = iter(loader)
        for _ in range(6):
            next(batches)
        cpu, began, count = time.process_time(), time.perf_counter(), 0
        while time.perf_counter() - began < _PROBE_S:
            next(batches)
            count += 1
        cpu = time.process_time() - cpu
        seen = made_batches(loader.stats()["record"]["loaders"][0]["steps"])[6:]
    return Work(
        _ROWS,
        tuple(each.batch_ns for each in seen),
        tuple(each.cpu_ns for each in seen),
        collate_ns=int(median(each.collate_ns for each in seen)),
        handover_ns=int(median(each.handover_ns for each in seen)),
        parent_ns=int(cpu / count * 1e9),
        threads_gain=1.0,
        slow_ns=tuple(each.slow_ns for each in seen),
        queued_ns=tuple(each.queued_ns for each in seen),
    )


def _compute(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(200))


def _step(seconds: float) -> None:
    if seconds:
        time.sleep(seconds)


def _slept(seconds: float) -> float:
    """What such a sleep really takes."""
    if not seconds:
        return 0.0
    taken = []
    for _ in range(30):
        began = time.perf_counter()
        time.sleep(seconds)
        taken.append(time.perf_counter() - began)
    return median(taken)


if __name__ == "__main__":
    main()
