"""``python -m benchmarks.tuning``: is what ``stoker tune`` recommends as good as the best of an exhaustive search?

For every workload a grid of settings is run in interleaved rounds; then ``stoker.tune`` gets its budget; then what it recommends
and the best of the grid meet in fresh rounds. The ratio of the two decides. ``--repeat`` tunes several times and tells whether the
verdicts agree, or say themselves that two settings are not separated.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import stoker
from benchmarks.machine import cores
from benchmarks.tuning_reference import Course, Times, compute_grid, ratio, waiting_grid
from stoker._runtime.simulation.point import Interval
from stoker._runtime.simulation.setting import Setting
from stoker._tools.tune.result import Tuning

_TARGETS = "benchmarks.tuning_targets"
_GOOD, _FAIR = 1.05, 1.10


@dataclass(frozen=True)
class Workload:
    """What is loaded, what the training loop takes for a batch (None: as fast as it can), and which grid is the reference."""

    name: str
    grid: Callable[..., list[Setting]]
    step_s: float | None = None
    step: str | None = None
    idle: bool = False
    """Whether data is not the bottleneck: nothing is to be changed."""
    module: str = _TARGETS
    """Where the loader of this name is."""

    @property
    def target(self) -> str:
        return f"{self.module}:{self.name.partition('-')[0]}"


SUITE = (
    Workload("sleep", waiting_grid, step_s=0.008),
    Workload("sleep-open", waiting_grid),
    Workload("jpeg", compute_grid),
    Workload("python", compute_grid),
    Workload("numpy", compute_grid),
    Workload("tensors", compute_grid),
    Workload("large", compute_grid),
    Workload("mixed", waiting_grid),
    Workload("stragglers", waiting_grid, step_s=0.010),
    Workload("parent", compute_grid, step=f"{_TARGETS}:busy_step"),
    Workload("idle", compute_grid, step_s=0.030, idle=True),
)


@dataclass
class Outcome:
    """Of one workload. ``ratio`` is the recommended setting's time over that of the grid's best, ``gain`` over the baseline's."""

    workload: str
    expected_idle: bool
    baseline: Setting
    best: Setting | None = None
    best_ns: float | None = None
    recommended: Setting | None = None
    recommended_ns: float | None = None
    ratio: Interval | None = None
    gain: Interval | None = None
    verdict: str = ""
    regime: str = ""
    stopped: str = ""
    failure: str = ""
    seconds: float = 0.0
    foreign_cpus: float | None = None
    grid: list[dict[str, Any]] = field(default_factory=list)
    tunings: list[dict[str, Any]] = field(default_factory=list)

    @property
    def says_idle(self) -> bool:
        return self.stopped == "not the bottleneck" and self.recommended == self.baseline

    @property
    def inside(self) -> bool:
        """Whether the best may as well be the recommended one."""
        return self.ratio is not None and self.ratio.low <= 1.0

    @property
    def good(self) -> bool:
        if self.expected_idle:
            return self.says_idle
        return self.ratio is not None and (self.ratio.middle <= _GOOD or self.inside)

    @property
    def fair(self) -> bool:
        return self.good or (self.ratio is not None and self.ratio.middle <= _FAIR)

    @property
    def agreed(self) -> bool:
        """Whether repeated tunings gave the same workers and executor, or said that settings are not separated."""
        told = {(each["workers"], each["executor"], each["threads"]) for each in self.tunings}
        return len(told) <= 1 or all(not each["separated"] for each in self.tunings[1:])


def main(argv: list[str] | None = None, suite: Sequence[Workload] = SUITE) -> int:
    """Run the command line. The exit code is 0 unless the arguments are wrong: a missed figure is shown, not punished."""
    options = _parser().parse_args(argv)
    names = options.only.split(",") if options.only else [each.name for each in suite]
    chosen = [each for each in suite if each.name in names]
    if unknown := set(names) - {each.name for each in chosen}:
        print(
            f"no such workload: {', '.join(sorted(unknown))}; there are {', '.join(each.name for each in suite)}"
        )
        return 2
    outcomes: list[Outcome] = []
    began = time.monotonic()
    try:
        for workload in chosen:
            outcomes.append(measure(workload, options))
            print(render(outcomes[-1]), flush=True)
    except KeyboardInterrupt:
        print("\ninterrupted: what follows covers the workloads that were finished", file=sys.stderr)
    print(summary(outcomes, time.monotonic() - began))
    if options.json:
        found = {
            "format": "stoker-tuning-suite",
            "cpus": cores(),
            "workloads": [asdict(each) for each in outcomes],
        }
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning", description=__doc__)
    parser.add_argument("--only", help="names of workloads, with commas")
    parser.add_argument("--budget", type=float, default=45.0, help="seconds for each tuning (default 45)")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="tune every workload N times")
    parser.add_argument(
        "--rounds", type=int, default=3, help="of the grid, for settings near the best (default 3)"
    )
    parser.add_argument("--full", action="store_true", help="a finer grid: minutes for each workload")
    parser.add_argument("--quick", action="store_true", help="two rounds of everything and a budget of 15 s")
    parser.add_argument("--json", metavar="FILE", help="write everything there")
    return parser


def measure(workload: Workload, options: argparse.Namespace) -> Outcome:
    """Reference, tuning, duel."""
    rounds, budget_s = (2, min(15.0, options.budget)) if options.quick else (options.rounds, options.budget)
    _say(f"{workload.name}: the grid")
    with closing(Course(workload.target, step_s=workload.step_s, step=workload.step)) as course:
        outcome = Outcome(workload.name, workload.idle, course.baseline)
        grid = course.grid(workload.grid(course.baseline, full=options.full), rounds=rounds)
    outcome.grid = [_as_dict(each) for each in grid]
    ran = [each for each in grid if each.rounds]
    if not ran:
        outcome.failure = grid[0].failure
        return outcome
    outcome.best = ran[0].setting
    foreign = [each for times in ran for each in times.foreign]
    outcome.foreign_cpus = mean(foreign) if foreign else None
    for number in range(options.repeat):
        _say(
            f"{workload.name}: tuning" + (f" {number + 1} of {options.repeat}" if options.repeat > 1 else "")
        )
        found = stoker.tune(
            workload.target, step_s=workload.step_s, step=workload.step, budget_s=budget_s, save=False
        )
        outcome.tunings.append(_told(found))
        if not number:
            _take(outcome, found)
    _say(f"{workload.name}: face to face")
    with closing(Course(workload.target, step_s=workload.step_s, step=workload.step, seed=1)) as course:
        _face(outcome, course, rounds=2 * rounds)
    return outcome


def _take(outcome: Outcome, found: Tuning) -> None:
    outcome.recommended = found.recommended
    outcome.verdict, outcome.regime, outcome.stopped = found.verdict, found.regime, found.stopped
    outcome.seconds, outcome.failure = found.spent_s, found.failure


def _face(outcome: Outcome, course: Course, *, rounds: int) -> None:
    """The recommended setting, the best of the grid and the baseline, in fresh rounds."""
    assert outcome.best is not None
    assert outcome.recommended is not None
    settings = list(dict.fromkeys([outcome.best, outcome.recommended, outcome.baseline]))
    times = {each.setting: each for each in course.duel(settings, rounds=rounds)}
    best, mine, before = (times[each] for each in (outcome.best, outcome.recommended, outcome.baseline))
    failed = [each for each in times.values() if each.failure]
    if failed:
        outcome.failure = failed[0].failure
    outcome.best_ns, outcome.recommended_ns = best.typical_ns, mine.typical_ns
    everybody = list(times.values())
    outcome.ratio = Interval(1.0, 1.0, 1.0) if best is mine else ratio(mine, best, everybody)
    outcome.gain = Interval(1.0, 1.0, 1.0) if before is mine else ratio(mine, before, everybody)


def _told(found: Tuning) -> dict[str, Any]:
    setting = found.recommended
    return {
        "workers": setting.workers, "executor": setting.executor if setting.workers else "inline", "threads": setting.threads,
        "prefetch": setting.prefetch, "separated": found.separated, "verdict": found.verdict, "regime": found.regime,
        "stopped": found.stopped, "spent_s": found.spent_s,
        "points": [[said(each.setting), each.interval_ns.middle, asdict(each.ratio)] for each in found.points],
    }  # fmt: skip


def _as_dict(times: Times) -> dict[str, Any]:
    return {
        "setting": said(times.setting), "ns": list(times.rounds.values()), "cpu_ns": times.cpu_ns, "failure": times.failure
    }  # fmt: skip


def said(setting: Setting | None) -> str:
    """A setting, short: "8", "8 ×16" (threads in each), "8 threads", "2 p8" (prefetch 8), "2 whole" (not split), "torch 0"."""
    if setting is None:
        return "-"
    words = [str(setting.workers)]
    if setting.engine == "torch":
        words.insert(0, "torch")
    if setting.workers:
        if setting.executor == "thread":
            words.append("threads")
        if setting.threads > 1:
            words.append(f"×{setting.threads}")
        if (setting.prefetch or 2) != 2:
            words.append(f"p{setting.prefetch}")
        if setting.split is False:
            words.append("whole")
    return " ".join(words)


def render(outcome: Outcome) -> str:
    """One workload, in a few lines."""
    if outcome.ratio is None or outcome.gain is None:
        return f"{outcome.workload}: {outcome.failure}"
    mark = "within 5 %" if outcome.good else "within 10 %" if outcome.fair else "WORSE"
    if outcome.expected_idle:
        mark = (
            "said that data is not the bottleneck"
            if outcome.says_idle
            else "DID NOT SAY that data is not the bottleneck"
        )
    elif outcome.good and outcome.ratio.middle > _GOOD:
        mark = "inside the interval of the best"
    others = "" if outcome.foreign_cpus is None else f", others used {outcome.foreign_cpus:.1f} CPUs"
    mine = f"recommended {said(outcome.recommended)} ({_ms(outcome.recommended_ns)})"
    best = f"best of the grid {said(outcome.best)} ({_ms(outcome.best_ns)})"
    lines = [
        f"{outcome.workload}: {mark}",
        f"  {mine}, {best}, now {said(outcome.baseline)}",
        f"  time over the best's {_interval(outcome.ratio)}, over now's {_interval(outcome.gain)}",
        f"  {outcome.seconds:.0f} s, {outcome.regime}, stopped: {outcome.stopped}{others}",
        f"  {outcome.verdict}",
    ]
    if outcome.failure:
        lines.append(f"  failed: {outcome.failure}")
    if len(outcome.tunings) > 1:
        told = ", ".join(
            f"{each['workers']} {each['executor']}" + (f" ×{each['threads']}" if each["threads"] > 1 else "")
            + ("" if each["separated"] else " (not separated)")
            for each in outcome.tunings
        )  # fmt: skip
        lines.append(f"  {'agree' if outcome.agreed else 'DO NOT AGREE'}: {told}")
    return "\n".join(lines)


def summary(outcomes: list[Outcome], seconds: float) -> str:
    """The figures of the suite."""
    total = len(outcomes)
    good, fair = sum(each.good for each in outcomes), sum(each.fair for each in outcomes)
    lines = [
        f"{good} of {total} within 5 % or inside the best's interval, {fair} of {total} within 10 %; {seconds / 60:.1f} min"
    ]
    idle = [each for each in outcomes if each.expected_idle]
    if idle:
        lines.append(
            f"{sum(each.says_idle for each in idle)} of {len(idle)} said that data is not the bottleneck, and changed nothing"
        )
    if any(len(each.tunings) > 1 for each in outcomes):
        lines.append(
            f"{sum(each.agreed for each in outcomes)} of {total} gave one verdict, or said that it is not separated"
        )
    return "\n".join(lines)


def _interval(found: Interval) -> str:
    return f"{found.middle:.2f} [{found.low:.2f}, {found.high:.2f}]"


def _ms(ns: float | None) -> str:
    return "-" if ns is None else f"{ns / 1e6:.3g} ms"


def _say(text: str) -> None:
    with suppress(OSError):
        print(f"… {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
