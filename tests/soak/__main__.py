"""`python -m tests.soak`: the soak from the command line. Exit code 1 when there is any finding."""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Iterator
from random import Random, SystemRandom

from tests.soak.ledger import Ledger
from tests.soak.supervisor import Supervisor

_SEEDS = 2**31


def main() -> int:
    """Play, print, and say by the exit code whether all is well."""
    options = _arguments()
    seed = options.seed if options.seed is not None else SystemRandom().randrange(_SEEDS)
    ledger = Ledger(seed if options.only is None else options.only, quiet=options.json)
    seeds: Iterator[int]
    if options.only is None:
        dice = Random(seed)
        seeds = (dice.randrange(_SEEDS) for _ in itertools.count())
    else:
        seeds = itertools.repeat(options.only, options.times)
    try:
        Supervisor(seeds, ledger, options.players).run(60.0 * options.minutes)
    except KeyboardInterrupt:
        print("interrupted: what there is so far", file=sys.stderr)
    print(ledger.to_json() if options.json else ledger.summary())
    return 1 if ledger.findings else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (default: 5)")
    parser.add_argument(
        "--seed", type=int, help="what all scenarios are drawn from (default: another each time)"
    )
    parser.add_argument(
        "--only", type=int, metavar="SEED", help="play the scenario of this seed and no other"
    )
    parser.add_argument("--times", type=int, default=1, help="how often, with --only (default: 1)")
    parser.add_argument(
        "--players", type=int, default=min(2, os.cpu_count() or 1), help="processes that play side by side"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object and nothing else on stdout"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
