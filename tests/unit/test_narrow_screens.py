"""Nothing is wider than 60 columns where COLUMNS is 60: every command's screen, from stored or given results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stoker._record import journal
from stoker._record.finding import Edit, Finding
from stoker._runtime.simulation.setting import Setting
from stoker._tools.doctor.bisection import bisect as bisect_module
from stoker._tools.doctor.bisection.bisect import Bisection
from stoker._tools.doctor.bisection.procedure import BisectionSetting, BisectionTrial, Conclusion
from stoker._tools.doctor.diagnosis import Diagnosis
from stoker._tools.doctor.facts.trial import BisectionBaseline, BisectionOutcome
from stoker._tools.render import code_lines
from stoker._tools.top import lines
from stoker._tools.tune import bench, remote
from stoker._tools.tune.comparison import Comparison, Lane
from stoker._tools.tune.forms import data
from stoker._tools.tune.remote import RemoteForecast, RemotePoint
from stoker._tools.verify import verification
from stoker._tools.verify.answer import VerifyAnswer
from stoker._tools.verify.verification import Verification
from stoker.cli import top
from stoker.cli.main import main
from tests.unit.doctor.diagnoses import ARGUMENT, BIG, NOTE, SMALL, diagnosis, target
from tests.unit.profiled import Profiled
from tests.unit.records import SECOND, loader, run, steps
from tests.unit.test_top_command import seen
from tests.unit.tuning.tunings import BEST, NOW, OTHER, point, tuning

WIDTH = 60
LONG = "/home/somebody/experiments/2026/train_everything.py:make_the_loader"
WORDS = "a sentence that is long enough to be broken on every screen there is, with numbers such as 1,234,567.8 ms"


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))


def screen(*arguments: str) -> str:
    done = CliRunner().invoke(main, list(arguments))
    assert done.exit_code in (0, 1), done.output
    return done.stdout


def too_wide(text: str, *copied: str) -> list[str]:
    """Lines beyond the width, but for what is to be copied as it is."""
    return [
        line for line in text.splitlines() if len(line) > WIDTH and not any(each in line for each in copied)
    ]


def diagnosed() -> Diagnosis:
    found = Finding("STK404", "high", WORDS, WORDS, Edit(WORDS, site="train.py:3", kind="shown"), where=WORDS)
    return diagnosis(BIG, ARGUMENT, SMALL, NOTE, found, facts={"target": target("train.py", 3)}, subject=LONG)


def bisected() -> Bisection:
    own = BisectionBaseline(4, "forkserver", ("fork", "spawn", "forkserver"), ("dataset.transform",))
    failed = BisectionTrial(
        BisectionSetting(4, "forkserver"), BisectionOutcome("error", text=f"ValueError: {WORDS}")
    )
    fine = BisectionTrial(
        BisectionSetting(4, "forkserver", ("dataset.transform",)),
        BisectionOutcome("ok", batches=12, seconds=3.2),
    )
    code = "loader = DataLoader(dataset, num_workers=4, worker_init_fn=open_the_file, pin_memory=False)"
    advice = f"{WORDS}\n\n```python\n{code}\n```"
    return Bisection(LONG, own, (failed, fine), Conclusion(WORDS, (), failed), "STK103", advice)


def compared() -> Comparison:
    lanes = (
        Lane(("torch's default", "yours"), point(NOW, 21.3, 1.0), 47.0),
        Lane(("the usual advice",), point(Setting(4, engine="torch"), 0, 0, failure=WORDS)),
        Lane(("stoker tuned",), point(OTHER, 1.25, 0.06), 1800.0),
    )
    return Comparison(
        LONG, 64, lanes, WORDS, ("shuffle=True", "drop_last=True"), alike_text=WORDS, warnings=(WORDS,)
    )


def test_the_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker._tools.doctor.examination.doctor", lambda *args, **more: diagnosed())
    for words in ([], ["-v"]):
        text = screen("doctor", LONG, *words)
        assert too_wide(text, f"stoker doctor {LONG}", f"stoker tune {LONG}") == []
        assert f"          stoker doctor {LONG} --fix" in text.splitlines()
    monkeypatch.setattr(bisect_module, "bisect", lambda *args, **more: bisected())
    text = screen("doctor", LONG, "--bisect")
    assert too_wide(text, f"stoker doctor {LONG}") == []
    assert "    worker_init_fn=open_the_file,\n" in text
    assert too_wide(screen("doctor", "--list")) == []


def test_the_test_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    from stoker._tools.doctor.device_test import device_test

    report = device_test.DeviceReport(
        "cuda:0", (("registering", WORDS),), (Finding("STK901", "high", WORDS, WORDS),)
    )
    monkeypatch.setattr(device_test, "examine_device", lambda *args: report)
    assert too_wide(screen("doctor", "--device", "cuda")) == []


def test_tune_and_bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stored = tmp_path / "tuning.json"
    for recommended in (BEST, OTHER):
        shown = Edit(
            "stoker.DataLoader(dataset, batch_size=64, num_workers=8, executor='thread')", kind="shown"
        )
        points = (point(recommended, 1.0, 0.2), point(NOW, 21.3, 1.0), point(Setting(9), 0, 0, failure=WORDS))
        stored.write_text(
            data.render(tuning(recommended, points=points, target=LONG, edits=(shown,), warnings=(WORDS,)))
        )
        text = screen("tune", "--show", str(stored))
        assert too_wide(text) == []
        assert "(now)" in text
        assert "21.3 ms" in text
    monkeypatch.setattr(bench, "bench", lambda *args, **more: compared())
    text = screen("bench", LONG)
    assert too_wide(text) == []
    assert "batches/s" in text
    found = RemoteForecast(
        LONG, 0.1, 1000, 8, 0, 1e9, None, (RemotePoint(1, 10.0, "CPUs"), RemotePoint(2, 20.0, "network"))
    )
    monkeypatch.setattr(remote, "tune_remote", lambda *args, **more: found)
    assert too_wide(screen("tune", LONG, "--executor", "ray"), LONG) == []


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """Of two loaders with long names, one of which waits for everything."""
    waits = {("fetch", 0, "io"): 0.9, ("collate", 1, "compute"): 0.4, ("hand_over", 0, "head_of_line"): 0.2}
    first = loader(waits, steps=steps(20), site=LONG, dataset="package.module.Pictures")
    journal.write(
        run(first, loader({("fetch", 0, "starved"): 0.1}, name="valid", site=LONG)), tmp_path / "run.json"
    )
    return tmp_path / "run.json"


def test_reports(record: Path, tmp_path: Path) -> None:
    assert too_wide(screen("report", str(record))) == []
    assert too_wide(screen("report", str(record), "--what-if")) == []
    assert too_wide(screen("report", str(record), "--format", "text")) == []
    traced = Profiled()
    for _ in range(5):
        with traced.step():
            traced.next(8)
            traced.launch(2)
    assert too_wide(screen("report", str(traced.write(tmp_path / "trace.json")))) == []


def test_top(monkeypatch: pytest.MonkeyPatch) -> None:
    from stoker._tools.top.live import live
    from stoker._tools.top.processes import ProcessScan

    def moments(interval_s: float, pid: int | None) -> Iterator[Any]:
        scan = ProcessScan(100 * SECOND, (seen(4000, 4),), ())
        yield top._Moment(scan, live(scan, None))

    monkeypatch.setattr(top, "_moments", moments)
    text = screen("top", "--once")
    assert too_wide(text) == []
    assert "worker 3" in text


def test_a_number_stays_with_its_name_and_its_unit() -> None:
    rows = lines.broken(
        lines.TopLine("live", "  cpu .2 runq .8 off .0 | blame: the parent 3 %, I/O 36 µs"), 22
    )
    assert [row.text for row in rows] == [
        "  cpu .2 runq .8",
        "    off .0 | blame:",
        "    the parent 3 %,",
        "    I/O 36 µs",
    ]


def test_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        VerifyAnswer("runs", level, "different", WORDS, "loader", (1, 2)) for level in ("ok", "note", "fault")
    ]
    monkeypatch.setattr(verification, "verify", lambda paths: Verification([], answers))
    assert too_wide(screen("verify", "receipts")) == []


@pytest.mark.parametrize(
    "words",
    [
        ["env"], ["demo", "--list"], ["explain", "--list"], ["explain", "STK103"], ["explain", "STK201", "STK404"],
        ["explain", "more-workers"], ["explain", "starved", "io", "head-of-line"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_asks_nobody(words: list[str]) -> None:
    assert too_wide(screen(*words)) == []


def test_an_explanation(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("RuntimeError: DataLoader worker (pid 4321) is killed by signal: Killed.\n")
    assert too_wide(screen("explain", str(log))) == []


def test_code_is_broken_where_it_may_be() -> None:
    call = "stoker.DataLoader(dataset, batch_size=64, shuffle=True, num_workers=8, prefetch_factor=4, pin_memory=True)"
    lines = code_lines.fitted(call, 50)
    assert max(map(len, lines)) <= 50
    assert "".join(map(str.strip, lines)).replace(" ", "") == call.replace(" ", "")
    compile("\n".join(lines), "<call>", "exec")


def test_what_is_no_terminal_and_was_not_asked_for_a_width_has_long_lines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("COLUMNS")
    stored = tmp_path / "tuning.json"
    stored.write_text(json.dumps(data.as_json(tuning())))
    assert max(map(len, screen("tune", "--show", str(stored)).splitlines())) > WIDTH
