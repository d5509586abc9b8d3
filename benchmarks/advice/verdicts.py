"""``python -m benchmarks.advice.verdicts``: does ``stoker profile`` name the bottleneck that a training script was given?

Each script runs under the command, as a user would run it. The code of the verdict's first finding is held against those that would
be right; the confusion matrix shows what was said instead. Scripts like those on which thresholds were tuned are counted apart.
A run in which other processes had more than ``--most`` CPUs, and of which the verdict says so, is set aside: it is true, and says
nothing of the bottleneck.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import surroundings
from benchmarks.advice.training import BOTTLENECKS, FORMS, Bottleneck, Form, text

_WITHIN_S = 90
_ENTER = """
import os, sys
open(os.path.join(sys.argv.pop(1), "cgroup.procs"), "w").write(str(os.getpid()))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""Enters a cgroup, and becomes the command that follows."""
_NEIGHBOURS = frozenset({"cpu-neighbours"})
_LITTLE = 0.1
"""A loader that the loop waits for less than this share of the time is no bottleneck, whatever is said of it."""


def played(form: Form, bottleneck: Bottleneck, seconds: float) -> dict[str, Any]:
    """Run a script. Return what the verdict says of it."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stoker-advice-")))
        (folder / "train.py").write_text(text(form, bottleneck))
        group = stack.enter_context(surroundings.quota()) if bottleneck.quota else None
        if bottleneck.quota and group is None:
            raise RuntimeError("no cgroup with a quota can be made here")
        began_s = time.perf_counter()
        ran = subprocess.run(
            [
                sys.executable,
                *(() if group is None else ("-c", _ENTER, str(group))),
                "-m",
                "stoker",
                "profile",
                "-q",
                "-o",
                "run.json",
                "--verdict",
                "verdict.json",
                "train.py",
                f"{seconds:g}",
            ],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_WITHIN_S,
            check=False,
        )
        if not (folder / "verdict.json").exists():
            raise RuntimeError(f"{form.name}, {bottleneck.name}: {ran.stderr[-1500:]}")
        verdict = json.loads((folder / "verdict.json").read_text())
        record = json.loads((folder / "run.json").read_text())
    return {"took_s": time.perf_counter() - began_s, **_read(verdict, record)}


def _read(verdict: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    from stoker._record.causes.contention import foreign_cpus
    from stoker._record.schema import RunRecord

    loaders = RunRecord.from_dict(record).loaders
    busiest = max(loaders, key=lambda each: each.load.wall_ns, default=None)
    findings = [each for loader in verdict["loaders"][:1] for each in loader["findings"]]
    spent_ns = 0 if busiest is None else busiest.totals.wait_ns + busiest.totals.step_ns
    return {
        "headline": verdict["headline"],
        "codes": [each["code"] for each in findings if each["code"] != "stoker-loader"],
        "severities": [each["severity"] for each in findings if each["code"] != "stoker-loader"],
        "stall": busiest.totals.wait_ns / spent_ns if busiest is not None and spent_ns else None,
        "foreign_cpus": None if busiest is None else foreign_cpus(busiest.load),
    }


def right(bottleneck: Bottleneck, found: dict[str, Any], most: float) -> bool | None:
    """Whether the first finding is one that names the bottleneck. None: neighbours were in the way, and it names them."""
    code = first(found)
    if code in bottleneck.first:
        return True
    if bottleneck.name == "none" and found["stall"] is not None and found["stall"] < _LITTLE:
        return True
    disturbed = (found["foreign_cpus"] or 0.0) > most
    return None if disturbed and code in _NEIGHBOURS else False


def first(found: dict[str, Any]) -> str:
    """The code of the first finding; empty without any."""
    return found["codes"][0] if found["codes"] else ""


def matrix(results: dict[str, dict[str, Any]]) -> str:
    """A line per bottleneck: what was said of it, how often."""
    said: dict[str, Counter[str]] = {}
    for name, found in results.items():
        said.setdefault(name.partition("/")[2], Counter())[first(found) or "nothing"] += 1
    return "\n".join(
        f"{name:12} {', '.join(f'{code} {count}' for code, count in each.most_common())}"
        for name, each in said.items()
    )


def main() -> int:
    """Run, print each wrong verdict, the matrix and both scores."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.advice.verdicts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--forms", default=",".join(FORMS), metavar="NAMES")
    parser.add_argument("--only", default=",".join(BOTTLENECKS), metavar="NAMES", help="bottlenecks")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a script")
    parser.add_argument("--most", type=float, default=0.5, metavar="CPUS")
    parser.add_argument("--json", type=Path, metavar="FILE", help="add what was found to this file")
    parser.add_argument(
        "--within", type=float, default=1e9, metavar="SECONDS", help="start no further script after so long"
    )
    options = parser.parse_args()
    results: dict[str, Any] = (
        json.loads(options.json.read_text()) if options.json is not None and options.json.exists() else {}
    )
    began_s = time.monotonic()
    for form in options.forms.split(","):
        for name in options.only.split(","):
            # Of a Trainer a batch has names, so it brings no boxes.
            if f"{form}/{name}" in results or (form == "trainer" and name == "objects"):
                continue
            if time.monotonic() - began_s > options.within:
                break
            found = results[f"{form}/{name}"] = played(FORMS[form], BOTTLENECKS[name], options.seconds)
            told = {True: "", None: "  aside", False: "  WRONG: " + found["headline"]}[
                right(BOTTLENECKS[name], found, options.most)
            ]
            others = "?" if found["foreign_cpus"] is None else f"{found['foreign_cpus']:.1f}"
            print(
                f"{form:12} {name:11} {found['took_s']:5.1f} s, others {others}: {' '.join(found['codes'][:3])}{told}",
                flush=True,
            )
            if options.json is not None:
                options.json.write_text(json.dumps(results, indent=1))
    print(f"\n{matrix(results)}\n")
    for seen in (True, False):
        judged = [
            right(BOTTLENECKS[name.partition("/")[2]], found, options.most)
            for name, found in results.items()
            if FORMS[name.partition("/")[0]].seen is seen
        ]
        counted = [each for each in judged if each is not None]
        if counted:
            share = f"{sum(counted)} of {len(counted)} right ({sum(counted) / len(counted):.0%})"
            print(
                f"{'tuned on such' if seen else 'not tuned on'}: {share}, {len(judged) - len(counted)} set aside"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
