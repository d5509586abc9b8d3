"""``make test``: all tests in three runs of pytest, of which each goes on when an earlier one failed.

1. Tests marked serial, alone: they measure the machine, or change their process.
2. All others, two at a time.
3. Those with frameworks and Ray, two at a time in processes of their own, because importing these packages changes a process.

With ``--again``, as CI runs it, each test that failed is run twice more, alone in a process of its own. It counts as passed when it
passes both times, and is listed as unsteady, which is a defect to mend. A machine that others share can fail a test once; a change
that breaks something fails its tests every time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FAILED = ROOT / ".pytest_cache/v/cache/lastfailed"
TWO_AT_A_TIME = ("-n", "2", "--dist", "worksteal", "-m", "not serial")
APART = ("tests/frameworks", "tests/ray")
MOST_AGAIN = 10
"""With more failures than this, the change is at fault and not the machine."""

Run = Callable[[Sequence[str]], int]


def main() -> int:
    """All runs, and what failed in them."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.suite", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--again", action="store_true", help="run each failed test twice more, alone")
    again = parser.parse_args().again
    FAILED.unlink(missing_ok=True)
    codes = [pytest(arguments) for arguments in runs()]
    if not any(codes):
        return 0
    if not again or any(code not in (0, 1) for code in codes):  # 1: tests failed; others: pytest itself did
        return 1
    return 0 if steady(failed(), pytest) else 1


def runs() -> list[tuple[str, ...]]:
    """The arguments of each run of pytest. Only files that mark a test are collected for the first."""
    marking = sorted(
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if "mark.serial" in path.read_text(encoding="utf-8")
    )
    ignored = [f"--ignore={folder}" for folder in APART]
    return [("-m", "serial", *marking), (*TWO_AT_A_TIME, *ignored), (*TWO_AT_A_TIME, *APART)]


def failed() -> list[str]:
    """What pytest noted as failed in these runs."""
    return sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []


def steady(tests: Sequence[str], run: Run) -> bool:
    """Whether each of these passes twice, alone. No test to run again is no success: something else has failed."""
    if not tests or len(tests) > MOST_AGAIN:
        return False
    broken = [test for test in tests if any(run((test,)) for _ in range(2))]
    print("\nFailed once, then passed twice alone (unsteady: to be mended):")
    print("".join(f"  {test}\n" for test in tests if test not in broken) or "  none\n", end="")
    print("Failed again:")
    print("".join(f"  {test}\n" for test in broken) or "  none\n", end="", flush=True)
    return not broken


def pytest(arguments: Sequence[str]) -> int:
    """One run of pytest, with its output as it comes. Every process writes bytecode, so that the next one need not compile."""
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *arguments], cwd=ROOT, env=settings
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
