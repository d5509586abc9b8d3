"""``python -m benchmarks``: the duel of torch's DataLoader with stoker's.

Every round runs in fresh processes; rounds go over all cases in turn, so that a disturbance of a minute
touches one round of several cases and not all rounds of one. The exit code is 0 unless something crashed: a
missed figure is shown, not punished.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
from pathlib import Path

from benchmarks.cases import registry
from benchmarks.entries import FULL, QUICK, Case, Micro
from benchmarks.rounds import Field, RoundCrashed
from benchmarks.table import Result, as_json, render

LOADERS = ("torch", "stoker")

QUICK_BUDGET_S = 55.0
"""On a busy machine a quick run has one round instead of two, so that it stays below a minute."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    options = _parser().parse_args(argv)
    entries = registry()
    if options.list:
        for entry in entries.values():
            print(f"{entry.name:10} {entry.describe}\n{'':10} {entry.kind.value}")
        return 0
    names = options.only.split(",") if options.only else _default_names(entries, options.quick)
    unknown = [name for name in names if name not in entries]
    if unknown:
        print(f"no such case: {', '.join(unknown)}; see --list", file=sys.stderr)
        return 2
    if options.rounds is not None and options.rounds < 1:
        print("--rounds has to be at least 1", file=sys.stderr)
        return 2
    rounds = options.rounds or (QUICK if options.quick else FULL).rounds
    sides = (options.left, options.right)
    results = [Result(entries[name]) for name in names]
    # A bounded run (`timeout`, a CI job's end) still prints what it has, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    start_s = time.monotonic()
    budget_s = QUICK_BUDGET_S if options.quick and options.rounds is None else None
    _Run(results, sides, options.quick, options.seed).go(rounds, budget_s)
    print(render(results, sides))
    print(f"{rounds} rounds asked for, {time.monotonic() - start_s:.0f} s; ratio = {sides[0]} / {sides[1]}")
    target = options.json or (None if options.quick else _new_result_path())
    if target is not None:
        report = as_json(results, sides, rounds, options.quick, options.seed)
        target.write_text(json.dumps(report, indent=1) + "\n")
        print(f"every round as JSON: {target}")
    return 1 if any(result.crash for result in results) else 0


def _default_names(entries: dict[str, Case | Micro], quick: bool) -> list[str]:
    return [name for name, entry in entries.items() if entry.quick or not quick]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", metavar="NAME,…", help="run these cases")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"rounds per case (default {FULL.rounds})")
    parser.add_argument(
        "--quick", action="store_true", help="one or two short rounds of everything, under a minute"
    )
    parser.add_argument("--list", action="store_true", help="list the cases and stop")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write every round as JSON here (default: a new file in bench-results/)",
    )
    parser.add_argument(
        "--left", choices=LOADERS, default="torch", help="the loader on the left of the ratio"
    )
    parser.add_argument(
        "--right", choices=LOADERS, default="stoker", help="the loader on the right of the ratio"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the order of turns")
    return parser


def _new_result_path() -> Path:
    """Where a full run leaves its JSON when nothing else is said: a new file each time, ignored by git."""
    folder = Path("bench-results")
    folder.mkdir(exist_ok=True)
    return folder / time.strftime("%Y%m%d-%H%M%S.json")


class _Run:
    """One run of the command line: goes over the rounds and fills the results."""

    def __init__(self, results: list[Result], sides: tuple[str, str], quick: bool, seed: int) -> None:
        self.results = results
        self.sides = sides
        self.quick = quick
        self.rng = random.Random(seed)

    def go(self, rounds: int, budget_s: float | None = None) -> None:
        """Run ``rounds`` rounds, or fewer when the next one would not fit into the budget.

        A case that crashed is not tried again; Ctrl-C ends the run with what there is.
        """
        start_s = time.monotonic()
        # Half of the rounds begin with the left side: whoever goes second must not gain or lose by it.
        orders = [_balanced(_rounds_of(result, rounds), self.rng) for result in self.results]
        try:
            for number in range(rounds):
                spent_s = time.monotonic() - start_s
                if budget_s is not None and number and spent_s * (number + 1) / number > budget_s:
                    break
                turns = [
                    (result, order[number])
                    for result, order in zip(self.results, orders, strict=True)
                    if result.crash is None and number < len(order)
                ]
                while turns:
                    turns = self._field(turns, f"round {number + 1}/{rounds}")
        except KeyboardInterrupt:
            print("\ninterrupted: what follows covers the rounds that were finished", file=sys.stderr)
        _progress("")

    def _field(self, turns: list[tuple[Result, bool]], title: str) -> list[tuple[Result, bool]]:
        """Run the first turns in one set of fresh processes; return those that need another set."""
        shared = turns if self.quick else turns[:1]
        inlines = max((self._inlines(result) for result, _ in shared), default=0)
        done, result = 0, shared[0][0]
        duels = any(not isinstance(result.entry, Micro) for result, _ in shared)
        sides = self.sides if duels else ()
        try:
            with Field(sides, inlines, self.quick) as field:
                for result, left_first in shared:
                    _progress(f"{title}  {result.entry.name}")
                    done += 1
                    if isinstance(result.entry, Micro):
                        result.micro.append(field.micro(result.entry))
                    else:
                        result.heats.append(field.heat(result.entry, left_first, self.rng))
        except RoundCrashed as crash:
            result.crash = str(crash)
        return turns[done:]

    def _inlines(self, result: Result) -> int:
        """How many inline processes a case needs; a micro case runs in one, too."""
        if isinstance(result.entry, Micro):
            return 1
        if not result.entry.needs_inline:
            return 0
        return 1 if self.quick else result.workers


def _rounds_of(result: Result, rounds: int) -> int:
    return min(rounds, result.entry.most_rounds or rounds)


def _balanced(rounds: int, rng: random.Random) -> list[bool]:
    order = [number % 2 == 0 for number in range(rounds)]
    rng.shuffle(order)
    return order


def _progress(text: str) -> None:
    """Show one line that is written over on a terminal, and plain lines elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
