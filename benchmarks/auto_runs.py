"""Training loops for ``benchmarks.auto``: each in a fork of a process that has imported torch and done nothing else."""

from __future__ import annotations

import json
import os
import tempfile
import time
import traceback
import warnings
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import RandomSampler

from benchmarks import tuning_targets
from benchmarks.tuning_targets import count

_ENDLESS = 1 << 40


@dataclass(frozen=True)
class Case:
    """What is loaded, and what a step takes: so long on the CPU, so long off it."""

    name: str
    describe: str
    make: Callable[[], Any]
    """torch's loader over it, of which dataset and batch size are taken."""
    cpu_s: float = 0.0
    off_s: float = 0.0
    later_off_s: float | None = None
    """What it takes off the CPU from the moment on in which the demand changes."""


CASES = (
    Case("sleep", "16 samples that sleep for 5 ms; a step of 8 ms", tuning_targets.sleep, off_s=0.008),
    Case("sleep-open", "the same, as fast as it can", tuning_targets.sleep),
    Case("python", "16 samples of 0.5 ms in pure Python, as fast as it can", tuning_targets.python),
    Case("numpy", "16 samples of FFT and sorting, as fast as it can", tuning_targets.numpy),
    Case(
        "mixed",
        "8 samples that wait for 3 ms and compute for 0.5 ms, as fast as it can",
        tuning_targets.mixed,
    ),
    Case("tensors", "64 rows of 16 numbers in memory, as fast as it can", tuning_targets.tensors),
    Case(
        "stragglers",
        "8 samples of 1 ms, every 40th of 60; a step of 10 ms",
        tuning_targets.stragglers,
        off_s=0.010,
    ),
    Case(
        "parent",
        "16 samples of 0.5 ms in pure Python; a step that computes for 6 ms",
        tuning_targets.parent,
        cpu_s=0.006,
    ),
    Case("idle", "batches of 4 ms; a step of 30 ms", tuning_targets.idle, off_s=0.030),
)

FASTER = Case(
    "faster",
    "sleep, and a step of 40 ms that becomes one of 8",
    tuning_targets.sleep,
    off_s=0.040,
    later_off_s=0.008,
)
SLOWER = Case(
    "slower",
    "sleep, and a step of 8 ms that becomes one of 40",
    tuning_targets.sleep,
    off_s=0.008,
    later_off_s=0.040,
)
NEIGHBOUR = Case(
    "neighbour",
    "mixed with a step of 20 ms, and a process that computes comes and goes",
    tuning_targets.mixed,
    off_s=0.020,
)


@dataclass(frozen=True)
class Loop:
    """A finished run: when each batch was taken, in seconds since the first was, and what the loader says of itself."""

    taken_s: array[float]
    workers: int
    begun: str
    actions: list[dict[str, Any]]
    held: str

    def interval_s(self, since_s: float, until_s: float) -> float:
        """Mean of the steps that ended in that time; infinite when there was none."""
        inside = [each for each in self.taken_s if since_s <= each <= until_s]
        return (inside[-1] - inside[0]) / (len(inside) - 1) if len(inside) > 1 else float("inf")

    def intervals(self, width_s: float = 2.0) -> list[tuple[float, float]]:
        """(end of a stretch, mean interval in it), one after the other."""
        found, end_s = [], width_s
        while end_s <= self.taken_s[-1]:
            found.append((end_s, self.interval_s(end_s - width_s, end_s)))
            end_s += width_s
        return found

    def within_s(self, target_s: float, since_s: float = 0.0, until_s: float = float("inf")) -> float | None:
        """When, after ``since_s``, all stretches up to ``until_s`` were at most 10 % above the target; None: never."""
        reached: float | None = None
        for end_s, interval_s in self.intervals():
            if not since_s < end_s <= until_s:
                continue
            if interval_s > 1.1 * target_s:
                reached = None
            elif reached is None:
                reached = end_s - 2.0
        return None if reached is None else max(0.0, reached - since_s)


def run(
    case: Case, workers: int | str, seconds: float, *, change_s: float | None = None, profiles: str = "off"
) -> Loop:
    """The loop with so many workers, or "auto", for so long after its first batch. Raises RuntimeError when it crashes."""
    return start(case, workers, seconds, change_s=change_s, profiles=profiles).wait()


@dataclass
class Started:
    """A run under way."""

    pid: int
    file: Path
    folder: tempfile.TemporaryDirectory[str]

    def wait(self) -> Loop:
        """Until it ends."""
        with self.folder:
            _, status = os.waitpid(self.pid, 0)
            if status:
                raise RuntimeError(f"a run ended with {os.waitstatus_to_exitcode(status)}")
            told = json.loads(self.file.read_text())
        return Loop(
            array("d", told["taken_s"]), told["workers"], told["begun"], told["actions"], told["held"]
        )


def start(
    case: Case, workers: int | str, seconds: float, *, change_s: float | None, profiles: str
) -> Started:
    """Begin a run and return."""
    folder = tempfile.TemporaryDirectory()
    file = Path(folder.name, "loop")
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.environ["STOKER_PROFILES"] = profiles
            warnings.simplefilter("ignore")  # of more workers than CPUs: that is the point
            file.write_text(json.dumps(_loop(case, workers, seconds, change_s)))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return Started(pid, file, folder)


def _loop(case: Case, workers: int | str, seconds: float, change_s: float | None) -> dict[str, Any]:
    import stoker

    theirs = case.make()
    order = RandomSampler(
        theirs.dataset, replacement=True, num_samples=_ENDLESS, generator=torch.Generator().manual_seed(0)
    )
    arguments: dict[str, Any] = {
        "batch_size": theirs.batch_size,
        "collate_fn": theirs.collate_fn,
        "num_workers": workers,
    }
    loader: Any = stoker.DataLoader(theirs.dataset, sampler=order, **arguments)
    clock = time.perf_counter
    batches = iter(loader)
    next(batches)
    began_s = now_s = clock()
    taken_s = array("d", [0.0])
    off_s = case.off_s
    while now_s - began_s < seconds:
        if case.cpu_s:
            _compute(case.cpu_s)
        if change_s is not None and case.later_off_s is not None and now_s - began_s >= change_s:
            off_s = case.later_off_s
        if off_s:
            time.sleep(off_s)
        next(batches)
        now_s = clock()
        taken_s.append(now_s - began_s)
    tuning = loader.stats().get("tuning") or {}
    told = {
        "taken_s": list(taken_s),
        "workers": int(loader.num_workers),
        "begun": str((tuning.get("begun") or {}).get("reason", "")),
        "actions": tuning.get("actions", []),
        "held": tuning.get("held") or "",
    }
    loader.close()
    return told


def _compute(seconds: float) -> None:
    until_s = time.thread_time() + seconds
    while time.thread_time() < until_s:
        count(200, 3)
