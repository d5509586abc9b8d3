"""Records a training loop with slow samples: torch's loader under ``stoker profile``, and stoker's own.

The records are kept: the report's breakdown, lanes, blame and slowest samples are made of them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from stoker._record import journal
from stoker._record.schema import RunRecord
from stoker._tools.demo.act import ActContext
from stoker._tools.render.section import Code, Prose, Section

TITLE = "A recorded run"
SECONDS = (2.5, 14.0)

_WORKERS = 4
_ROW_S, _STEP_S = 1e-3, 7e-3
_KEPT_ROWS = 600
"""Of the table of steps, for each run: the first and the last of them."""
_MOST_STEPS = 500
_COMMANDS = "stoker profile -o run.json train.py\nstoker report run.json -o report.html"


def run(stage: ActContext) -> dict[str, Any]:
    """Both loaders, one after the other, for as many steps each as the budget has room for."""
    from stoker._tools.demo.flavours import Straggling
    from stoker._tools.demo.loader_rate import LOADERS

    steps = max(30, min(_MOST_STEPS, round(stage.budget_s * 0.4 / (_STEP_S * 1.5))))
    runs = []
    for place, kind in enumerate(LOADERS):
        folder = Path(stage.folder, f"profile-{kind}")

        def tell(share: float, kind: str = kind, place: int = place) -> None:
            stage.tell(f"{kind}, {steps} steps", (place + share) / len(LOADERS))

        began = time.monotonic()
        record = _recorded(kind, Straggling(_ROW_S), steps, folder, tell)
        runs.append({"label": kind, "seconds": time.monotonic() - began, "record": thinned(record).as_dict()})
    return {
        "workers": _WORKERS,
        "row_ms": _ROW_S * 1e3,
        "step_ms": _STEP_S * 1e3,
        "steps": steps,
        "runs": runs,
    }


def lines(result: dict[str, Any]) -> list[str]:
    """How much of the time each waited."""
    shares = {each["label"]: _waiting(each["record"]) for each in result["runs"]}
    told = ", ".join(f"{label} {share:.0%}" for label, share in shares.items())
    return [f"Waiting, of steps of {result['step_ms']:.0f} ms with straggling rows: {told}."]


def sections(result: dict[str, Any]) -> list[Section]:
    """What was run. What it shows, the report's own sections say."""
    text = (
        f"A loop with a step of {result['step_ms']:.0f} ms, {result['steps']} times, on rows of {result['row_ms']:.0f} ms of which"
        f" one in 61 takes 100 times as long, with {result['workers']} workers: once with torch's loader, watched as"
        " `stoker profile` does, and once with stoker's, which keeps its record itself. The sections below"
        " are what `stoker report` makes of such records. For a script of yours:"
    )
    return [Section("profile", "A run, recorded", (Prose(text), Code(_COMMANDS, "sh")))]


def thinned(record: RunRecord) -> RunRecord:
    """As a run that has ended, with no more of the table of steps than a page can show; what was left out is counted in it."""
    for loader in record.loaders:
        loader.site = None  # a line of the demo's own, which nobody can edit
        rows = len(next(iter(loader.steps.values()), ()))
        if rows > _KEPT_ROWS:
            half = _KEPT_ROWS // 2
            loader.steps = {name: [*each[:half], *each[-half:]] for name, each in loader.steps.items()}
            loader.steps_dropped += rows - 2 * half
    record.run.ended = (
        True  # of the demo's process, which goes on, and of its command, that is not what was recorded
    )
    record.run.argv = []
    return record


def _waiting(record: dict[str, Any]) -> float:
    totals = record["loaders"][0]["totals"]
    return float(totals["wait_ns"] / max(1, totals["wait_ns"] + totals["step_ns"]))


def _recorded(kind: str, dataset: Any, steps: int, folder: Path, tell: Any) -> RunRecord:
    """One run, recorded in a folder of its own."""
    from stoker._tools.demo.loader_rate import TORCH, loader_of, started
    from stoker._tools.profile.torch_loader import install

    folder.mkdir()
    before = os.environ.get(journal.ENVIRONMENT)
    os.environ[journal.ENVIRONMENT] = str(folder)
    try:
        if kind == TORCH:
            install.install()
        try:
            with loader_of(kind, dataset, _WORKERS) as loader:
                for number, _ in enumerate(started(loader)):
                    time.sleep(_STEP_S)
                    if number % 20 == 0:
                        tell(number / steps)
                    if number + 1 == steps:
                        break
            del loader, _  # its record is written to its end when the loader goes
        finally:
            install.uninstall()
    finally:
        if before is None:
            del os.environ[journal.ENVIRONMENT]
        else:
            os.environ[journal.ENVIRONMENT] = before
    return journal.read(folder)
