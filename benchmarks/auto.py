"""``python -m benchmarks.auto``: how good is ``num_workers="auto"`` after half a minute, and how soon after a change?

For every case fixed numbers of workers are tried in interleaved rounds. Then a loop with "auto" runs from cold (no saved profile)
for 30 s, between two runs of the best fixed number, and its last seconds are held against these two. The last three runs change
something in the middle: the demand, twice, and a neighbour. Nothing is asserted: what is printed is what was measured.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks import surroundings
from benchmarks.auto_runs import CASES, FASTER, NEIGHBOUR, SLOWER, Case, Loop, run, start
from benchmarks.machine import LoadMark, cores

_COUNTS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_FEW = (0, 1, 2, 4, 8, 16)
_SLOW = 1.3
"""A count that took so many times the best one's time leaves after the first round."""


@dataclass(frozen=True)
class Plan:
    """How long everything takes."""

    seconds: float = 30.0
    tail_s: float = 6.0
    try_s: float = 2.5
    rounds: int = 2
    beside_s: float = 6.0
    counts: tuple[int, ...] = _COUNTS


QUICK = Plan(seconds=16.0, tail_s=4.0, try_s=1.2, rounds=1, beside_s=3.0, counts=_FEW)


@dataclass
class Outcome:
    """One case, in seconds per step."""

    name: str
    best: int
    fixed: dict[int, float]
    """By number of workers, as tried."""
    beside_s: list[float] = field(default_factory=list)
    """The best fixed number again, before and after the run with "auto"."""
    auto_s: float = 0.0
    workers: int = 0
    within_s: float | None = None
    foreign_cpus: float = 0.0
    actions: list[dict[str, Any]] = field(default_factory=list)
    held: str = ""
    curve: list[tuple[float, float]] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return self.auto_s / mean(self.beside_s)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; the exit code is 0 unless a run crashed."""
    options = _parser().parse_args(argv)
    known = [*(each.name for each in CASES), *_CHANGES]
    names = options.only.split(",") if options.only else known
    if unknown := set(names) - set(known):
        print(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    plan = QUICK if options.quick else Plan()
    outcomes: list[Outcome] = []
    changes: list[dict[str, Any]] = []
    print(
        f"{cores()} CPUs; ratios are times per step: 1.05 means that auto takes 5 % longer than the best fixed number\n"
    )
    try:
        with tempfile.TemporaryDirectory() as empty:
            for case in CASES:
                if case.name in names:
                    outcomes.append(measure(case, plan, empty))
                    print(render(case, outcomes[-1]), flush=True)
            for name, change in _CHANGES.items():
                if name in names:
                    changes.append({"name": name, **change(plan, empty)})
                    print(changes[-1].pop("text"), flush=True)
    except KeyboardInterrupt:
        print("\ninterrupted: what follows covers what was finished", file=sys.stderr)
    if outcomes:
        good = sum(each.ratio <= 1.1 for each in outcomes)
        print(f"within 10 % of the best fixed number: {good} of {len(outcomes)}")
    if options.json:
        report = {
            "format": "stoker-auto",
            "cpus": cores(),
            "plan": vars(plan),
            "cases": [{**vars(each), "ratio": each.ratio} for each in outcomes],
            "changes": changes,
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.auto", description=__doc__)
    parser.add_argument("--only", metavar="NAME,…", help="run these cases")
    parser.add_argument("--quick", action="store_true", help="shorter runs and fewer fixed numbers: noisy")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure as JSON here")
    return parser


def measure(case: Case, plan: Plan, empty: str) -> Outcome:
    """Fixed numbers, then "auto" between two runs of the best of them."""
    fixed = try_counts(case, plan)
    best = min(fixed, key=fixed.__getitem__)
    outcome = Outcome(case.name, best, fixed)
    outcome.beside_s.append(_steady(case, best, plan.beside_s))
    before = LoadMark.now()
    loop = run(case, "auto", plan.seconds, profiles=empty)
    outcome.foreign_cpus = before.foreign_cores(LoadMark.now())
    outcome.beside_s.append(_steady(case, best, plan.beside_s))
    outcome.auto_s = loop.interval_s(plan.seconds - plan.tail_s, plan.seconds)
    outcome.workers, outcome.actions, outcome.held = loop.workers, loop.actions, loop.held
    outcome.curve = loop.intervals()
    outcome.within_s = loop.within_s(mean(outcome.beside_s))
    return outcome


def try_counts(case: Case, plan: Plan, *, later: bool = False) -> dict[int, float]:
    """Median time per step of every number of workers, in shuffled rounds. ``later``: with the demand after the change."""
    rng = random.Random(0)
    seen: dict[int, list[float]] = {count: [] for count in plan.counts}
    for number in range(plan.rounds):
        counts = list(seen)
        if number:
            least = min(median(each) for each in seen.values())
            counts = [count for count in counts if median(seen[count]) <= _SLOW * least]
        rng.shuffle(counts)
        for count in counts:
            seen[count].append(_steady(case, count, plan.try_s, later=later))
    return {count: median(each) for count, each in seen.items()}


def _steady(case: Case, workers: int, seconds: float, *, later: bool = False) -> float:
    """Time per step after the first fifth of a run."""
    return run(case, workers, seconds, change_s=0.0 if later else None).interval_s(seconds / 5, seconds)


def render(case: Case, outcome: Outcome) -> str:
    """A few lines: the ratio, where the numbers lay, and what "auto" did."""
    tried = "  ".join(f"{count}: {each * 1e3:.2f}" for count, each in outcome.fixed.items())
    reached = "not" if outcome.within_s is None else f"after {outcome.within_s:.0f} s"
    lines = [
        f"{case.name}: {case.describe}",
        f"  ms per step, fixed: {tried}",
        f"  best fixed {outcome.best}: {' and '.join(f'{each * 1e3:.2f}' for each in outcome.beside_s)} ms",
        f"  auto {outcome.workers}: {outcome.auto_s * 1e3:.2f} ms, ratio {outcome.ratio:.3f}, within 10 % for good {reached}",
        f"  others kept {outcome.foreign_cpus:.1f} CPUs busy meanwhile",
    ]
    return "\n".join([*lines, *_told(outcome.actions, outcome.held), ""])


def _told(actions: list[dict[str, Any]], held: str) -> list[str]:
    lines = [
        f"    {each['at_s']:6.1f} s {each['kind']:7} workers {'→'.join(map(str, each['workers']))}"
        f" window {'→'.join(map(str, each['window']))}: {each['reason']}"
        for each in actions
    ]
    return [*lines, f"           held: {held}"] if held else lines


def demand(case: Case) -> Callable[[Plan, str], dict[str, Any]]:
    """A run in whose middle the step becomes shorter or longer."""

    def measured(plan: Plan, empty: str) -> dict[str, Any]:
        fixed = try_counts(case, plan, later=True)
        best = min(fixed, key=fixed.__getitem__)
        change_s = plan.seconds * 0.8
        loop = run(case, "auto", change_s + plan.seconds, change_s=change_s, profiles=empty)
        after_s = loop.interval_s(change_s + plan.seconds - plan.tail_s, change_s + plan.seconds)
        recovered_s = loop.within_s(fixed[best], change_s)
        found = "did not come" if recovered_s is None else f"came after {recovered_s:.0f} s"
        text = [
            f"{case.name}: {case.describe}, at {change_s:.0f} s",
            f"  best fixed number afterwards {best}: {fixed[best] * 1e3:.2f} ms per step",
            f"  auto {loop.workers}: {after_s * 1e3:.2f} ms, ratio {after_s / fixed[best]:.3f}; within 10 % for good {found}",
            *_told(loop.actions, loop.held),
        ]
        return {
            "fixed": fixed,
            "best": best,
            "after_s": after_s,
            "recovered_s": recovered_s,
            **_kept(loop),
            "text": _text(text),
        }

    return measured


def neighbour(plan: Plan, empty: str) -> dict[str, Any]:
    """A run beside which a process that computes comes and goes."""
    fixed = try_counts(NEIGHBOUR, plan)
    best = min(fixed, key=fixed.__getitem__)
    comes_s, goes_s, ends_s = plan.seconds * 0.7, plan.seconds * 1.3, plan.seconds * 2.1
    loops: dict[str, Loop] = {}
    for name, workers in (("fixed", best), ("auto", "auto")):
        began_s = time.perf_counter()
        started = start(NEIGHBOUR, workers, ends_s, change_s=None, profiles=empty)
        time.sleep(max(0.0, began_s + comes_s - time.perf_counter()))
        with surroundings.burners(cores()):
            time.sleep(max(0.0, began_s + goes_s - time.perf_counter()))
        loops[name] = started.wait()
    phases = [
        (comes_s - plan.tail_s, comes_s),
        (goes_s - plan.tail_s, goes_s),
        (ends_s - plan.tail_s, ends_s),
    ]
    phases = [
        (since_s, until_s - 0.5) for since_s, until_s in phases
    ]  # the loop's clock began a little later
    times = {name: [loop.interval_s(*phase) for phase in phases] for name, loop in loops.items()}
    recovered_s = loops["auto"].within_s(times["fixed"][2], goes_s)
    found = "not within 10 % again" if recovered_s is None else f"within 10 % again after {recovered_s:.0f} s"
    text = [
        f"{NEIGHBOUR.name}: {NEIGHBOUR.describe}: {cores()} of them from {comes_s:.0f} to {goes_s:.0f} s",
        *(
            f"  {name}: {', '.join(f'{each * 1e3:.2f}' for each in times[name])} ms per step before, beside and after"
            for name in times
        ),
        f"  fixed {best} workers; auto {loops['auto'].workers} in the end; {found}",
        *_told(loops["auto"].actions, loops["auto"].held),
    ]
    return {
        "fixed": fixed,
        "best": best,
        "times_s": times,
        "recovered_s": recovered_s,
        **_kept(loops["auto"]),
        "text": _text(text),
    }


def _kept(loop: Loop) -> dict[str, Any]:
    return {"workers": loop.workers, "actions": loop.actions, "held": loop.held, "curve": loop.intervals()}


def _text(lines: list[str]) -> str:
    return "\n".join([*lines, ""])


_CHANGES = {FASTER.name: demand(FASTER), SLOWER.name: demand(SLOWER), NEIGHBOUR.name: neighbour}

if __name__ == "__main__":
    sys.exit(main())
