"""``python -m benchmarks.advice.edits``: does the first edit that is advised help as it promises?

A script of ``benchmarks.advice.training`` runs under ``stoker profile``. The best edit that can be typed into it is made, as
``stoker advise --write`` makes it. Then the script as it was and the edited one run in turns. What a step takes after the first
batch, in each of these runs, is held against the promise: an expectation may be missed by ``--slack``, a bound not be beaten by
more than that, and no edit may make steps slower by more than 5 %.
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
from statistics import median
from typing import Any

from benchmarks.advice.training import BOTTLENECKS, FORMS, text
from stoker._record import journal
from stoker._record.schema import RunRecord
from stoker._tools.advise.ranking import AdvisedEdit, ranked
from stoker._tools.doctor.patches.fixes import patch_of
from stoker._tools.doctor.patches.patch import WantedEdit, kind_of
from stoker._tools.report.verdict.verdict import judge

_WITHIN_S = 90
_HARM = 0.05
_CELLS = "no-workers,too-few,collate,start-up,stragglers,too-many,decode,gil"


def run(folder: Path, script: str, seconds: float) -> RunRecord:
    """Run a script under the profiler."""
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "stoker",
            "profile",
            "-q",
            "--force",
            "-o",
            "run.json",
            script,
            f"{seconds:g}",
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_WITHIN_S,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(f"{script}: {ran.stderr[-1500:]}")
    return journal.read(folder / "run.json")


def step_s(record: RunRecord) -> float:
    """What a step of the busiest loader takes, without the wait for the first batch of each epoch where that is known."""
    busiest = max(record.loaders, key=lambda each: each.totals.wait_ns + each.totals.step_ns)
    totals = busiest.totals
    whole_ns, steps = totals.wait_ns + totals.step_ns, totals.steps
    if totals.epochs <= 1 and totals.first_batch_ns is not None and steps > 1:
        whole_ns, steps = whole_ns - totals.first_batch_ns, steps - 1
    return whole_ns / 1e9 / max(1, steps)


def first_edit(record: RunRecord) -> AdvisedEdit | None:
    """The best that can be typed into a file."""
    return next((each for each in ranked(judge(record), ()) if kind_of(each.edit) != "shown"), None)


def played(form: str, bottleneck: str, seconds: float, rounds: int) -> dict[str, Any]:
    """What was promised, and what came."""
    with tempfile.TemporaryDirectory(prefix="stoker-advice-") as name:
        folder = Path(name)
        (folder / "train.py").write_text(text(FORMS[form], BOTTLENECKS[bottleneck]))
        record = run(folder, "train.py", seconds)
        edit = first_edit(record)
        if edit is None:
            return {"edit": None}
        line = (edit.site or "").rpartition(":")[2]
        wanted = WantedEdit(edit.code, edit.edit, int(line) if line.isdecimal() else None)
        patch, refused = patch_of(os.fspath(folder / "train.py"), [wanted])
        if patch is None or patch.after == patch.before:
            return {"edit": str(edit.edit), "refused": [each.reason for each in refused]}
        (folder / "edited.py").write_bytes(patch.after)
        before, after = [step_s(record)], []
        for number in range(rounds):
            after.append(step_s(run(folder, "edited.py", seconds)))
            if number + 1 < rounds:
                before.append(step_s(run(folder, "train.py", seconds)))
        return {
            "edit": str(edit.edit),
            "code": edit.code,
            "promised": edit.share,
            "at_most": edit.at_most,
            "before_s": before,
            "after_s": after,
            "gained": 1 - median(after) / median(before),
        }


def kept(found: dict[str, Any], slack: float) -> bool:
    """Whether it helped as promised. Where no gain is promised, it must do no harm."""
    gained, promised = found["gained"], found["promised"]
    if promised is None:
        return bool(gained >= -_HARM)
    if found["at_most"]:
        return bool(-_HARM <= gained <= promised + slack)
    return bool(promised - slack <= gained)


def main() -> int:
    """Run, print a line for each script, and the score."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.advice.edits", description=__doc__)
    parser.add_argument("--forms", default="bare,transformer,accumulate", metavar="NAMES")
    parser.add_argument("--only", default=_CELLS, metavar="NAMES", help="bottlenecks")
    parser.add_argument("--seconds", type=float, default=4.0, help="of a run")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--slack", type=float, default=0.10, help="share of a step's time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="add what was found to this file")
    parser.add_argument(
        "--within", type=float, default=1e9, metavar="SECONDS", help="start no further one after so long"
    )
    options = parser.parse_args()
    results: dict[str, Any] = (
        json.loads(options.json.read_text()) if options.json is not None and options.json.exists() else {}
    )
    began_s = time.monotonic()
    for form in options.forms.split(","):
        for name in options.only.split(","):
            if f"{form}/{name}" in results or time.monotonic() - began_s > options.within:
                continue
            found = results[f"{form}/{name}"] = played(form, name, options.seconds, options.rounds)
            _print(f"{form:12} {name:11}", found, options.slack)
            if options.json is not None:
                options.json.write_text(json.dumps(results, indent=1))
    made = [each for each in results.values() if "gained" in each]
    good = sum(kept(each, options.slack) for each in made)
    harmful = sum(each["gained"] < -_HARM for each in made)
    print(f"\n{good} of {len(made)} edits helped as promised; harmful: {harmful}; without an edit: "
          f"{len(results) - len(made)}")  # fmt: skip
    return 0


def _print(name: str, found: dict[str, Any], slack: float) -> None:
    if "gained" not in found:
        print(f"{name} no edit ({found['edit']})", flush=True)
        return
    promised = (
        "not known"
        if found["promised"] is None
        else f"{'at most ' * found['at_most']}−{found['promised']:.0%}"
    )
    told = "" if kept(found, slack) else "  NOT AS PROMISED"
    print(f"{name} {found['edit']:62} promised {promised:12} came {-found['gained']:+.0%}{told}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
