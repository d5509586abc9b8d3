"""``python -m benchmarks.start``: how long the command line takes to begin, beside an interpreter that does nothing.

Commands take turns, round by round, so that whatever disturbs the machine disturbs all of them. A shell asks for completions at
every press of the tab key, and people read ``--help`` while they think: both are to be there at once, under 300 ms.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

MOST_MS = 300
STOKER = ("-c", "from stoker.cli.main import main; main(prog_name='stoker')")
COMPLETED = {"COMP_CWORD": "2", "_STOKER_COMPLETE": "bash_complete"}
CASES: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "python -c pass": (("-c", "pass"), {}),
    "stoker --version": ((*STOKER, "--version"), {}),
    "stoker --help": ((*STOKER, "--help"), {}),
    "stoker <TAB>": (STOKER, {**COMPLETED, "COMP_WORDS": "stoker ", "COMP_CWORD": "1"}),
    "stoker report --<TAB>": (STOKER, {**COMPLETED, "COMP_WORDS": "stoker report --"}),
    "stoker explain STK2<TAB>": (STOKER, {**COMPLETED, "COMP_WORDS": "stoker explain STK2"}),
    "stoker tune --help": ((*STOKER, "tune", "--help"), {}),
    "stoker env": ((*STOKER, "env"), {}),
}


def took_ms(words: tuple[str, ...], variables: dict[str, str]) -> float:
    """One process, from its start to its end."""
    began_s = time.perf_counter()
    subprocess.run(
        [sys.executable, *words], env={**os.environ, **variables}, stdout=subprocess.DEVNULL, check=True
    )
    return (time.perf_counter() - began_s) * 1000


def main() -> None:
    """Take turns and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    found: dict[str, list[float]] = {name: [] for name in CASES}
    for number in range(rounds + 1):
        for name, (words, variables) in CASES.items():
            each_ms = took_ms(words, variables)
            if number:  # the first round reads files that the others find in memory
                found[name].append(each_ms)
    print(f"{'':26}{'median':>8}{'best':>8}{'worst':>8}   ms, {rounds} rounds")
    for name, values in found.items():
        median = statistics.median(values)
        missed = "" if median < MOST_MS else f"   over {MOST_MS}"
        print(f"{name:26}{median:8.0f}{min(values):8.0f}{max(values):8.0f}{missed}")


if __name__ == "__main__":
    main()
