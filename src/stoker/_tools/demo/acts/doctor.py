"""Runs the doctor on a dataset with classic faults (``_tools/demo/flawed.py``), as ``stoker doctor`` would."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from importlib import resources
from textwrap import shorten
from typing import Any

from stoker._record.finding import Gain, counted
from stoker._tools.demo.act import ActContext
from stoker._tools.render.section import Code, Part, Prose, Remark, Section
from stoker._tools.report.page.terms import edited, gained, sentence

TITLE = "The doctor on a flawed dataset"
SECONDS = (5.0, 9.0)

TARGET = "stoker._tools.demo.flawed:loader"
"""The same, for people to examine again."""
_CHECKS: tuple[tuple[str, ...], tuple[str, ...]] = (("STK102", "STK402", "STK501", "STK601"), ())
"""Quick: those whose probes are quick. Whole: all of them."""
_MACHINE = ("STK2",)
"""What is wrong with this machine is no fault of the dataset."""
_LIMIT_S = 2.5
"""Times the budget."""
_WIDEST = 70
"""Columns of a line."""


def run(stage: ActContext) -> dict[str, Any]:
    """One examination, in the doctor's own processes."""
    return examined(stage, _CHECKS[0 if stage.quick else 1], _LIMIT_S * SECONDS[0 if stage.quick else 1])


def examined(stage: ActContext, checks: Iterable[str], limit_s: float) -> dict[str, Any]:
    """By these checks, or by all. The file is a copy, so that it is examined as a script of the user's would be."""
    import stoker
    from stoker._tools.doctor.forms.data import as_json

    source = resources.files("stoker._tools.demo").joinpath("flawed.py").read_text(encoding="utf-8")
    folder = os.path.join(stage.folder, "doctor")
    os.makedirs(folder, exist_ok=True)
    try:
        file = os.path.join(folder, "flawed.py")
        with open(file, "w", encoding="utf-8") as copy:
            copy.write(source)
        began = time.perf_counter()
        diagnosis = stoker.doctor(
            f"{file}:loader",
            select=checks,
            ignore=_MACHINE,
            time_limit_s=limit_s,
            progress=lambda name, done, total: stage.tell(name, done / max(1, total)),
        )
        spent_s = time.perf_counter() - began
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if diagnosis.interrupted:
        raise KeyboardInterrupt
    return {"spent_s": spent_s, "source": source, "diagnosis": _without(as_json(diagnosis), folder + os.sep)}


def _without(value: Any, folder: str) -> Any:
    """The same without the name of a folder that is gone."""
    if isinstance(value, str):
        return value.replace(folder, "")
    if isinstance(value, dict):
        return {key: _without(each, folder) for key, each in value.items()}
    return [_without(each, folder) for each in value] if isinstance(value, list) else value


def lines(result: dict[str, Any]) -> list[str]:
    """How much it found, and the worst of it."""
    findings = result["diagnosis"]["findings"]
    if not findings:
        skipped = result["diagnosis"]["skipped"]
        return [f"no finding{': ' + skipped[0]['reason'] if skipped else ''}"[:_WIDEST]]
    worst = findings[0]
    first = f"{counted(len(findings), 'finding')} in {result['spent_s']:.0f} s: {', '.join(each['code'] for each in findings)}"
    return [
        shorten(first, _WIDEST, placeholder=" …"),
        f"{worst['code']}: {_lowered(worst['title'])}"[:_WIDEST],
    ]


def _lowered(title: str) -> str:
    return title[:1].lower() + title[1:]


def sections(result: dict[str, Any]) -> list[Section]:
    """Every finding with its evidence and what to do."""
    diagnosis = result["diagnosis"]
    skipped = diagnosis["skipped"]
    parts: list[Part] = [
        Prose(
            "`stoker doctor` examined the loader below, before any training: "
            f"{counted(len(diagnosis['findings']), 'finding')}, {counted(len(diagnosis['passed']), 'check')} without one"
            + (
                f", {len(skipped)} left out ({'; '.join(dict.fromkeys(each['reason'] for each in skipped))})"
                if skipped
                else ""
            )
            + f", in {result['spent_s']:.0f} s."
        ),
        *(_remark(each) for each in diagnosis["findings"]),
        Prose("The dataset:"),
        Code(_shown(result["source"]), "python"),
        Prose("To see it in full, and on your own loader:"),
        Code(f"stoker doctor {TARGET} --verbose\nstoker doctor train.py:loader", "shell"),
    ]
    return [Section("demo-doctor", TITLE, tuple(parts))]


def _remark(finding: dict[str, Any]) -> Remark:
    edit, gain = finding["edit"], finding["gain"]
    prevented = (
        f" stoker's loader prevents it: {_lowered(finding['prevented'])}" if finding["prevented"] else ""
    )
    return Remark(
        code=finding["code"],
        severity=finding["severity"],
        title=finding["title"] or "",
        evidence=_sentence(finding["evidence"]),
        advice=f"{finding['advice']}{prevented}",
        edit=None if edit is None else edited(edit["after"], edit["before"], edit["site"]),
        gain=None if gain is None else gained(Gain(gain["share"], gain["how"], gain["at_most"])),
    )


def _sentence(text: str) -> str:
    """As one; a name at its beginning stays as it is written in code."""
    first = text.partition(" ")[0]
    return sentence(text) if first.isalpha() else f"{text}{'' if text.endswith('.') else '.'}"


def _shown(source: str) -> str:
    """The class and the loader, without what is above."""
    return source[max(0, source.find("class Pictures")) :].strip()
