"""``python -m benchmarks.advice.doctor [--only NAME,…] [--json FILE]``: precision and recall of the doctor, per code.

Each case is a loader that a module here makes: healthy, of a library, or with one seeded fault. The command ``stoker doctor`` runs
on each as a user would. A finding of a healthy loader is wrong unless the case says that it is true. What is true of the machine
(STK2xx) is left out. Two findings of severity low are true of many: STK602 of files like these, which make many loaders, and
STK307 of what uses OpenCV with as many workers as CPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.advice import files
from benchmarks.advice.cases import Case
from benchmarks.advice.score import score, table

_ALWAYS_TRUE = frozenset({"STK307", "STK602"})
_WITHIN_S = 120


def cases(group: str) -> list[Case]:
    """Return the cases of a group."""
    from benchmarks.advice import faulty, healthy, libraries, streams

    groups = {
        "healthy": [*healthy.HEALTHY, *streams.STREAMS],
        "libraries": libraries.LIBRARIES,
        "faulty": faulty.FAULTY,
    }
    return [case for name, part in groups.items() if group in (name, "all") for case in part]


def examined(case: Case, time_limit_s: float) -> dict[str, Any]:
    """Run the command. Return its findings by code, with severity and evidence, and what it took."""
    began_s = time.perf_counter()
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "stoker",
            "doctor",
            case.target,
            "--json",
            "--fail-on",
            "none",
            "--time-limit",
            f"{time_limit_s:g}",
        ],
        capture_output=True,
        text=True,
        timeout=_WITHIN_S,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(f"{case.name}: exit code {ran.returncode}\n{ran.stderr[-2000:]}")
    answer = json.loads(ran.stdout)
    found = {
        each["code"]: each
        for each in answer["findings"]
        if not each["code"].startswith("STK2") and each["severity"] != "none"  # that is a note
    }
    return {
        "seconds": time.perf_counter() - began_s,
        "found": {code: [each["severity"], each["evidence"]] for code, each in found.items()},
        "skipped": {
            each["code"]: each["reason"] for each in answer["skipped"] if each["code"] in case.expected
        },
    }


def judged(case: Case, found: dict[str, Any]) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Return (expected, also true, found)."""
    return case.expected, case.also | (_ALWAYS_TRUE - case.expected), frozenset(found["found"])


def main() -> int:
    """Run, print each case that is not right, and the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.advice.doctor",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--group", choices=("all", "healthy", "libraries", "faulty"), default="all")
    parser.add_argument("--only", default="", metavar="NAMES", help="some of the cases, with commas")
    parser.add_argument("--part", default="1/1", metavar="N/M", help="the Nth of M parts")
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--json", type=Path, metavar="FILE", help="add what was found to this file")
    options = parser.parse_args()
    names = [name for name in options.only.split(",") if name]
    number, parts = map(int, options.part.split("/"))
    chosen = [case for case in cases(options.group) if not names or case.name in names][number - 1 :: parts]
    results: dict[str, Any] = (
        json.loads(options.json.read_text()) if options.json is not None and options.json.exists() else {}
    )
    with tempfile.TemporaryDirectory(prefix="stoker-advice-") as root:
        files.build(Path(root))
        os.environ["STOKER_PROFILES"] = "off"
        for case in chosen:
            results[case.name] = examined(case, options.time_limit)
            _print(case, results[case.name])
            if options.json is not None:
                options.json.write_text(json.dumps(results, indent=1))
    known = [case for case in cases("all") if case.name in results]
    total = score(judged(case, results[case.name]) for case in known)
    print(
        f"\n{len(known)} loaders, {sum(not case.expected for case in known)} of them healthy\n{table(total)}"
    )
    high = sum(
        severity == "high"
        for case in known
        if not case.expected
        for code, (severity, _) in results[case.name]["found"].items()
        if code not in case.also
    )
    print(f"findings of severity high on healthy loaders: {high}")
    return int(total.precision < 0.97 or total.recall < 0.95 or high > 0)


def _print(case: Case, result: dict[str, Any]) -> None:
    expected, also, found = judged(case, result)
    print(f"{case.name:24} {result['seconds']:5.1f} s  {' '.join(sorted(found)) or '-'}", flush=True)
    for code in sorted(expected - found):
        print(f"    missed {code}  {result['skipped'].get(code, '')[:150]}", flush=True)
    for code in sorted(found - expected - also):
        print(f"    wrong  {code}  {' '.join(result['found'][code])[:300]}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
