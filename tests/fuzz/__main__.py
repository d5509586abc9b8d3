"""`python -m tests.fuzz`: reads damaged inputs. Exit code 1 when any of them fails."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from random import SystemRandom

from tests.fuzz import campaign, guided
from tests.fuzz.campaign import FuzzResult
from tests.fuzz.format import Format
from tests.fuzz.guard import Guard
from tests.fuzz.self_test import broken

_SEEDS = 2**31
_TOLD_S = 10.0


def main() -> int:
    """Read, print, and say by the exit code whether all is well."""
    options = _arguments()
    if options.atheris:
        return guided.run(options.atheris, options.count, options.seed or 1)
    from tests.fuzz import formats

    known = formats.registry()
    everything = known | broken()
    counts = {name: int(count) for name, _, count in (each.partition("=") for each in options.counts)}
    unknown = {*options.format, *counts} - set(everything)
    if unknown:
        print(f"there is no format {', '.join(sorted(unknown))}: {', '.join(known)}", file=sys.stderr)
        return 2
    chosen = [everything[name] for name in (*options.format, *counts)] or list(known.values())
    seed = options.seed if options.seed is not None else SystemRandom().randrange(_SEEDS)
    if options.only is not None:
        return _again(chosen[0], seed, options.only, options.write)
    until_s = time.monotonic() + 60 * options.minutes if options.minutes else None
    counts = counts or campaign.shares(chosen, options.count)
    print(f"{sum(counts.values())} inputs of {len(chosen)} formats from seed {seed}", file=sys.stderr)
    result = campaign.run(chosen, seed, counts, until_s=until_s, told=_Told())
    _show(result)
    return 1 if result.failures else 0


class _Told:
    """Prints now and then how far it is."""

    def __init__(self) -> None:
        self._last_s = self._began_s = time.monotonic()
        self._failures = 0

    def __call__(self, result: FuzzResult) -> None:
        for each in result.failures[self._failures :]:
            print(f"FAILED {each.command}: {each.defect}", file=sys.stderr, flush=True)
        self._failures = len(result.failures)
        now_s = time.monotonic()
        if now_s - self._last_s > _TOLD_S:
            self._last_s = now_s
            read = result.inputs.total()
            print(
                f"{now_s - self._began_s:6.0f} s  {read:9} inputs  {self._failures} failures",
                file=sys.stderr,
                flush=True,
            )


def _again(kind: Format, seed: int, number: int, target: Path | None) -> int:
    """One input, in this process."""
    data = kind.input(seed, number)
    if target is not None:
        target.write_bytes(data)
    guard = Guard()
    try:
        guard.warm([kind])
        reason = guard.failure(kind, data)
    finally:
        guard.close()
    print(f"{kind.name} {number}: {len(data)} bytes: {reason or 'nothing is wrong'}")
    return 1 if reason else 0


def _show(result: FuzzResult) -> None:
    print(f"{'format':18} {'inputs':>9} {'accepted':>9} {'s':>7} {'failures':>8}")
    for name, count in sorted(result.inputs.items()):
        failures = sum(each.format == name for each in result.failures)
        print(
            f"{name:18} {count:9} {result.accepted[name]:9} {result.seconds[name] / 1000:7.1f} {failures:8}"
        )
    print(
        f"{'all':18} {result.inputs.total():9} {result.accepted.total():9} {result.seconds.total() / 1000:7.1f} "
        f"{len(result.failures):8}"
    )
    defects = Counter(each.defect for each in result.failures)
    for defect, count in defects.most_common():
        first = next(each for each in result.failures if each.defect == defect)
        print(f"\nFAILED {count} times: {first.command}\n{first.reason}")
    if result.interrupted:
        print("the time was over before all inputs were read")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--count", type=int, default=20_000, help="how many inputs in all (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, help="what all inputs are drawn from (default: another each time)"
    )
    parser.add_argument("--format", action="append", default=[], help="only this format; may be repeated")
    parser.add_argument(
        "--counts",
        action="append",
        default=[],
        metavar="FORMAT=N",
        help="so many of this format; may be repeated",
    )
    parser.add_argument("--only", type=int, metavar="NUMBER", help="read one input again")
    parser.add_argument("--write", type=Path, metavar="FILE", help="with --only: also write the input")
    parser.add_argument("--minutes", type=float, help="stop after this time")
    parser.add_argument("--atheris", metavar="FORMAT", help="guided by coverage; needs the extra `fuzz`")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
