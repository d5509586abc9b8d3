"""``stoker advise``: runs a script once, lets the verdict and the doctor look at it, and ranks their edits."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stoker._host.secrets import masked_words
from stoker._record.finding import counted, duration
from stoker._record.schema import RunRecord
from stoker._tools.advise import bounded_run
from stoker._tools.advise.forecast import ForecastRow, forecast
from stoker._tools.advise.hang import Hang, find_hang, without_hang
from stoker._tools.advise.ranking import AdvisedEdit, ranked
from stoker._tools.doctor.diagnosis import Diagnosis
from stoker._tools.doctor.patches.fixes import FilePatch, LocatedEdit, fixes_of
from stoker._tools.doctor.patches.patch import RefusedEdit
from stoker._tools.report.verdict.codes import VerdictFinding
from stoker._tools.report.verdict.verdict import LoaderVerdict, Verdict, judge
from stoker._tools.sandbox.held import HeldSandbox
from stoker.errors import StokerError

_MOST_TARGETS = 2
_MOST_FURTHER = 2
_FEW_STEPS = 16
"""Of a script that failed or hangs: before that, its loader has hardly begun."""


@dataclass(frozen=True, slots=True)
class Command:
    """What was asked for: Python's arguments from the script (or ``-m``, module) on, and seconds for the run."""

    argv: tuple[str, ...]
    run_s: float = 60.0

    @property
    def script(self) -> str:
        """The script, or the module after ``-m``."""
        return self.argv[1] if self.argv[0] == "-m" else self.argv[0]

    def again(self, *options: str) -> str:
        """The line to type for the same with these options. Secrets are left out."""
        return (
            f"stoker advise {shlex.join([*options, '--budget', f'{self.run_s:g}', *masked_words(self.argv)])}"
        )


@dataclass(frozen=True, slots=True)
class Advice:
    """The answer. ``patches`` make the edits; ``refused`` are those that only a person can make."""

    command: Command
    record: RunRecord
    verdict: Verdict
    hang: Hang | None
    examined: tuple[str, ...]
    diagnoses: tuple[Diagnosis, ...]
    edits: tuple[AdvisedEdit, ...]
    further: tuple[VerdictFinding, ...]
    """What only a person can do, with no edit to type."""
    patches: tuple[FilePatch, ...]
    refused: tuple[RefusedEdit, ...]
    forecast: tuple[ForecastRow, ...]
    notes: tuple[str, ...]
    exit: str
    stopped: bool
    interrupted: bool
    """Whether Ctrl-C ended it: what is here was seen until then."""

    @property
    def failed(self) -> bool:
        """Whether there was nothing to go by: no loader handed out a batch."""
        return not self.verdict.loaders


def advise(
    command: Command, *, doctor_s: float = 30.0, progress: Callable[[str], None] = lambda _: None
) -> Advice:
    """Run the script for at most ``command.run_s`` seconds, then examine the loaders that it used.

    ``doctor_s`` bounds the examination of all loaders together. Main thread. Raises OSError when the script cannot be started.
    """
    progress(f"running {command.script} for at most {command.run_s:g} s; Ctrl-C ends it with what was seen")
    with bounded_run.running(command.argv, command.run_s) as ran:
        hang = find_hang(ran.record) if ran.stopped else None
        verdict = _judged(command, ran.record, hang, failed=not ran.stopped and ran.exit != "0")
        notes = [*ran.notes, *_ending(command, ran, verdict)]
        diagnoses: list[Diagnosis] = []
        if verdict.loaders and not ran.interrupted:
            diagnoses = _examined(ran.held, verdict, doctor_s, notes, progress)
    interrupted = ran.interrupted or any(each.interrupted for each in diagnoses)
    edits = ranked(verdict, diagnoses)
    if hang is not None and verdict.loaders and verdict.loaders[0].steps < _FEW_STEPS:
        edits = tuple(each for each in edits if each.severity == "high" and each.source == "doctor")
    folder = Path() if command.argv[0] == "-m" else Path(command.script).parent
    fixes = fixes_of(LocatedEdit(each.code, each.edit, *_located(each.site, folder)) for each in edits)
    return Advice(
        command,
        ran.record,
        verdict,
        hang,
        tuple(each.subject for each in diagnoses),
        tuple(diagnoses),
        edits,
        _further(verdict),
        fixes.patches,
        fixes.refused,
        _forecast(ran.record, verdict, edits, diagnoses),
        tuple(notes),
        ran.exit,
        ran.stopped,
        interrupted,
    )


def _judged(command: Command, record: RunRecord, hang: Hang | None, *, failed: bool) -> Verdict:
    """The verdict, which leaves it to our notes to say how the script ended."""
    quiet = replace(record, run=replace(record.run, exit=None, ended=True))
    if hang is not None:
        return _stuck(judge(without_hang(quiet)), hang, command)
    verdict = judge(quiet)
    steps = sum(each.steps for each in verdict.loaders)
    if failed and verdict.loaders and steps < _FEW_STEPS:
        headline = (
            f"The script failed after {counted(steps, 'batch', 'batches')}, too few to judge its loaders by."
        )
        return replace(verdict, headline=headline)
    return verdict


def _stuck(verdict: Verdict, hang: Hang, command: Command) -> Verdict:
    """The loader that hangs comes first, and so does what to do about it."""
    found: list[LoaderVerdict] = []
    for each in verdict.loaders:
        if (each.name, each.site) == (hang.name, hang.site):
            others = [one for one in each.findings if one.code not in ("no-batch", "not-data")]
            if each.steps < _FEW_STEPS:
                others = []
            found.insert(0, replace(each, findings=(hang.finding(command.script), *others)))
        else:
            found.append(each)
    return replace(verdict, headline=hang.sentence, loaders=tuple(found))


def _ending(command: Command, ran: bounded_run.BoundedRun, verdict: Verdict) -> list[str]:
    """How the script ended, and what follows from it."""
    after = duration(ran.ran_s)
    if ran.interrupted:
        return [f"Ctrl-C ended the script after {after}: this is what was seen until then."]
    if ran.stopped and not verdict.loaders:
        text = f"The script was stopped after {after}, and no loader was asked for a batch until then: "
        return [f"{text}give it longer (--budget), or see what it does meanwhile (py-spy dump, Ctrl-C)."]
    if ran.stopped:
        return [f"The script was stopped after {after}: the advice rests on what was seen until then."]
    if ran.exit == "0":
        return [] if verdict.loaders else ["The script used no DataLoader: there is nothing to advise about."]
    if verdict.loaders:
        return [
            f"The script ended with {ran.exit}: the advice rests on what came before. stoker explain reads its error."
        ]
    if ran.exit == "2":
        return [
            f"The script ended with 2: give the arguments it needs after its name, stoker advise {command.script} ARGUMENTS."
        ]
    return [
        f"The script ended with {ran.exit} before a loader handed out a batch. stoker explain reads its error."
    ]


def _examined(
    held: Sequence[HeldSandbox],
    verdict: Verdict,
    doctor_s: float,
    notes: list[str],
    progress: Callable[[str], None],
) -> list[Diagnosis]:
    """The doctor on the loaders as the script had them, those that are waited for most first."""
    from stoker._tools.doctor.examination import doctor

    order = [os.path.basename(each.site or "") for each in verdict.loaders]
    known = sorted(held, key=lambda each: order.index(each.name) if each.name in order else len(order))
    ready = [each for each in known if not each.refusal][:_MOST_TARGETS]
    notes += [
        f"The doctor did not examine the loader of {each.name}: {each.refusal}."
        for each in known
        if each.refusal
    ]
    if not known:
        notes.append(
            "The doctor was not asked: no copy of the script's process could be kept at its first iter(). Type stoker doctor "
            "FILE.py:FUNCTION, with a function that returns the loader."
        )
    found: list[Diagnosis] = []
    for each in ready:
        progress(f"examining the loader of {each.name}")
        try:
            found.append(doctor(each, time_limit_s=doctor_s / len(ready)))
        except StokerError as error:
            notes.append(
                f"The doctor could not examine the loader of {each.name}: {str(error).splitlines()[0]}"
            )
        if found and found[-1].interrupted:
            notes.append("Ctrl-C ended the examination: this is what was found until then.")
            break
    return found


def _located(site: str | None, beside: Path) -> tuple[str | None, int | None]:
    """The file and line of "train.py:31": below the current folder, or beside the script."""
    name, _, line = (site or "").rpartition(":")
    for folder in (Path(), beside):
        path = folder / name
        if name and path.is_file():
            return os.path.abspath(path), int(line) if line.isdecimal() else None
    return None, None


def _further(verdict: Verdict) -> tuple[VerdictFinding, ...]:
    """Findings without an edit, of the loader that waits most."""
    first = verdict.loaders[:1]
    found = [each for loader in first for each in loader.findings if each.edit is None]
    return tuple(each for each in found if each.code != "not-data")[:_MOST_FURTHER]


def _forecast(
    record: RunRecord, verdict: Verdict, edits: Sequence[AdvisedEdit], diagnoses: Sequence[Diagnosis]
) -> tuple[ForecastRow, ...]:
    """Return the forecast for the loader that is waited for most, with the advised number of workers."""
    if not verdict.loaders:
        return ()
    name, site = verdict.loaders[0].name, verdict.loaders[0].site
    advised = [each.edit.after.removeprefix("num_workers=") for each in edits if each.site == site]
    counts = [int(each) for each in advised if each.isdecimal()]
    diagnosis = next((each for each in diagnoses if loader_site(each) == site), None)
    return forecast(record, name, site, counts, diagnosis)


def loader_site(diagnosis: Diagnosis) -> str | None:
    """Where the loader was made that a diagnosis is about."""
    found: str | None = getattr(getattr(diagnosis.facts.get("target"), "loader", None), "site", None)
    return found
