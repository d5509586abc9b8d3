"""`python -m tests.soak`: the soak from the command line. Exit code 1 when there is any finding."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from random import SystemRandom

from tests.soak.legs import LEGS, chosen
from tests.soak.soak_totals import SoakTotals
from tests.soak.supervisor import SEEDS, Plan, Supervisor


def main() -> int:
    """Play, print, and say by the exit code whether all is well."""
    options = _arguments()
    seed = options.seed if options.seed is not None else SystemRandom().randrange(SEEDS)
    legs, only = options.only
    minutes = 60.0 * options.hours if options.hours is not None else options.minutes
    if only is not None:
        plan = Plan(legs, only, only=(legs[0], [only] * options.times))
        minutes = max(minutes, 60.0)
    else:
        plan = Plan(legs, seed)
    totals = SoakTotals(seed if only is None else only, quiet=options.json)
    try:
        Supervisor(plan, totals, 1 if only is not None else options.players).run(60.0 * minutes)
    except KeyboardInterrupt:
        print("interrupted: what there is so far", file=sys.stderr)
    print(totals.to_json() if options.json else totals.summary())
    if options.summary is not None:
        options.summary.write_text(totals.to_json() + "\n")
    return 1 if totals.findings else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description="\n".join([__doc__, "", *(f"{name:12}{leg.about}" for name, leg in LEGS.items())]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, default=5.0, help="how long (default: 5)")
    length.add_argument("--hours", type=float, help="how long, for a night")
    parser.add_argument(
        "--seed", type=int, help="what all scenarios are drawn from (default: another each time)"
    )
    parser.add_argument(
        "--only",
        type=_only,
        default=(list(LEGS), None),
        metavar="LEG,…",
        help="these legs; LEG:SEED plays one scenario and no other",
    )
    parser.add_argument("--times", type=int, default=1, help="how often, with LEG:SEED (default: 1)")
    parser.add_argument(
        "--players", type=int, default=min(2, os.cpu_count() or 1), help="processes that play side by side"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object and nothing else on stdout"
    )
    parser.add_argument("--summary", type=Path, metavar="FILE", help="write the JSON object to a file too")
    return parser.parse_args()


def _only(text: str) -> tuple[list[str], int | None]:
    names, _, seed = text.partition(":")
    try:
        return chosen(names), int(seed) if seed else None
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
