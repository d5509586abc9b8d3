"""``stoker advise``: runs a script once, lets the verdict and the doctor look at it, and ranks their edits."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker._record.finding import counted
from stoker._record.schema import RunRecord
from stoker._tools.advise import bounded_run
from stoker._tools.advise.ranking import AdvisedEdit, ranked
from stoker._tools.advise.reachable import reachable
from stoker._tools.doctor.diagnosis import Diagnosis
from stoker._tools.doctor.patches.fixes import FilePatch, LocatedEdit, fixes_of
from stoker._tools.doctor.patches.patch import RefusedEdit
from stoker._tools.report.verdict.codes import VerdictFinding
from stoker._tools.report.verdict.verdict import Verdict, judge
from stoker.errors import RecordError, StokerError

VERSION = 1
_MOST_TARGETS = 2
_MOST_FURTHER = 2


@dataclass(frozen=True, slots=True)
class Advice:
    """The answer. ``patches`` make the edits; ``refused`` are those that only a person can make."""

    script: str
    record: RunRecord
    verdict: Verdict
    examined: tuple[str, ...]
    diagnoses: tuple[Diagnosis, ...]
    edits: tuple[AdvisedEdit, ...]
    further: tuple[VerdictFinding, ...]
    """What only a person can do, with no edit to type."""
    patches: tuple[FilePatch, ...]
    refused: tuple[RefusedEdit, ...]
    forecast: tuple[str, ...]
    notes: tuple[str, ...]
    exit: str
    stopped: bool

    @property
    def failed(self) -> bool:
        """Whether there was nothing to go by: no loader handed out a batch."""
        return not self.verdict.loaders

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "format": "stoker-advice",
            "version": VERSION,
            "script": self.script,
            "exit": self.exit,
            "stopped": self.stopped,
            "verdict": self.verdict.headline,
            "examined": list(self.examined),
            "findings": [
                {"code": each.code, "severity": each.severity}
                for one in self.diagnoses
                for each in one.findings
            ],
            "edits": [
                {
                    "code": each.code,
                    "source": each.source,
                    "severity": each.severity,
                    "before": each.edit.before,
                    "after": each.edit.after,
                    "site": each.site,
                    "gain": each.share,
                    "at_most": each.at_most,
                    "evidence": each.evidence,
                    "advice": each.advice,
                }
                for each in self.edits
            ],
            "further": [
                {
                    "code": each.code,
                    "evidence": each.evidence,
                    "advice": each.advice,
                    "gain": None if each.gain is None else each.gain.share,
                    "at_most": each.gain is not None and each.gain.at_most,
                }
                for each in self.further
            ],
            "refused": [
                {"code": each.code, "edit": str(each.edit), "reason": each.reason} for each in self.refused
            ],
            "patch": b"".join(each.diff() for each in self.patches).decode("utf-8", "replace"),
            "forecast": list(self.forecast),
            "notes": [*self.verdict.notes, *self.notes],
        }


def advise(
    argv: Sequence[str],
    *,
    run_s: float = 60.0,
    doctor_s: float = 30.0,
    progress: Callable[[str], None] = lambda _: None,
) -> Advice:
    """Run ``argv`` (a script and its arguments) for at most ``run_s`` seconds, then examine what can be reached of it.

    ``doctor_s`` bounds the examination of all loaders together. Main thread. Raises OSError when the script cannot be started.
    """
    script = argv[0]
    progress(f"running {script} for at most {run_s:.0f} s")
    ran = bounded_run.run(argv, run_s)
    verdict = judge(ran.record)
    notes = list(ran.notes)
    if ran.stopped and not verdict.loaders:
        notes.append(
            f"The script was stopped after {ran.ran_s:.0f} s, and no loader was asked for a batch until then: give it longer "
            f"(--budget), or see what it does meanwhile (py-spy dump, Ctrl-C)."
        )
    elif ran.stopped:
        notes.append(
            f"The script was stopped after {ran.ran_s:.0f} s: the advice rests on what was seen until then."
        )
    elif ran.exit != "0" and verdict.loaders:
        notes.append("The script failed: pipe its error into stoker explain, which says what it means.")
    elif ran.exit == "2" and not verdict.loaders:
        notes.append(
            f"The script ended with 2: give the arguments it needs after its name, stoker advise {script} ARGUMENTS."
        )
    elif ran.exit != "0" and not verdict.loaders:
        notes.append("The script failed before a loader handed out a batch. stoker explain reads its error.")
    elif not verdict.loaders:
        notes.append("The script used no DataLoader: there is nothing to advise about.")
    examined, diagnoses = _examined(script, doctor_s, notes, progress) if verdict.loaders else ([], [])
    edits = ranked(verdict, diagnoses)
    fixes = fixes_of(LocatedEdit(each.code, each.edit, *_located(each.site, Path(script))) for each in edits)
    return Advice(
        script,
        ran.record,
        verdict,
        tuple(examined),
        tuple(diagnoses),
        edits,
        _further(verdict),
        fixes.patches,
        fixes.refused,
        _forecast(ran.record, edits),
        tuple(notes),
        ran.exit,
        ran.stopped,
    )


def _examined(
    script: str, doctor_s: float, notes: list[str], progress: Callable[[str], None]
) -> tuple[list[str], list[Diagnosis]]:
    """The doctor on loaders that can be had without a training."""
    from stoker._tools.doctor.examination import doctor

    try:
        names = reachable(Path(script).read_text(encoding="utf-8"))[:_MOST_TARGETS]
    except (OSError, SyntaxError, ValueError):
        names = []
    if not names:
        notes.append(
            "The doctor was not asked: no loader can be had without running the training. Put its making into a function without "
            f"arguments, and type stoker doctor {script}:FUNCTION."
        )
        return [], []
    examined, found = [], []
    for name in names:
        target = f"{script}:{name}"
        progress(f"examining {target}")
        try:
            found.append(doctor(target, time_limit_s=doctor_s / len(names)))
            examined.append(target)
        except StokerError as error:
            notes.append(f"The doctor could not examine {target}: {str(error).splitlines()[0]}")
    return examined, found


def _located(site: str | None, script: Path) -> tuple[str | None, int | None]:
    """The file and line of "train.py:31": below the current folder, or beside the script."""
    name, _, line = (site or "").rpartition(":")
    for folder in (Path(), script.parent):
        path = folder / name
        if name and path.is_file():
            return os.path.abspath(path), int(line) if line.isdecimal() else None
    return None, None


def _further(verdict: Verdict) -> tuple[VerdictFinding, ...]:
    """Findings without an edit, of the loader that waits most."""
    first = verdict.loaders[:1]
    found = [each for loader in first for each in loader.findings if each.edit is None]
    return tuple(each for each in found if each.code != "not-data")[:_MOST_FURTHER]


def _forecast(record: RunRecord, edits: Sequence[AdvisedEdit]) -> tuple[str, ...]:
    """What the replay says of other numbers of workers, the advised one among them, of the loader that waits most."""
    from stoker._tools.report.what_if import what_if

    advised = [each.edit.after.removeprefix("num_workers=") for each in edits]
    counts = {0, 1, 2, 4, *(int(each) for each in advised if each.isdecimal())}
    questions = [what_if.parse(f"workers={count}") for count in sorted(counts)]
    try:
        answered = what_if.answer(record, questions)["loaders"][0]
    except RecordError:
        return ()
    now_ns = answered["replayed"]["interval_ns"]
    if not now_ns:
        return ()
    lines = []
    for each in answered["cases"]:
        took_ns = each["interval_ns"]
        workers = counted(each["workers"], "worker")
        lines.append(f"{workers}: a batch every {took_ns / 1e6:.1f} ms ({took_ns / now_ns - 1:+.0%})")
    return tuple(lines)
