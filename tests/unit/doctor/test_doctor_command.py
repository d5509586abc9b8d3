"""``stoker doctor`` with diagnoses made by hand: options, forms, exit codes, and patches of real files."""

from __future__ import annotations

import io
import json
import os
import signal
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stoker._record.finding import Edit
from stoker._tools.doctor import examination
from stoker._tools.doctor.catalogue import catalogue
from stoker._tools.doctor.diagnosis import Diagnosis
from stoker._tools.doctor.patches.fixes import FixError, can_be_made, fixes
from stoker.cli.doctor import _progress
from stoker.cli.main import main
from stoker.errors import TargetError
from tests.unit.doctor.diagnoses import ARGUMENT, BIG, SMALL, diagnosis, loader, target

SOURCE = "from torch.utils.data import DataLoader\n\ntrain = DataLoader(\n    data,\n    pin_memory=True,  # fast\n)\n"


@pytest.fixture
def said(monkeypatch):
    """What the doctor is made to answer; ``said.asked`` has what it was asked."""

    class Said:
        answer: Diagnosis | BaseException = diagnosis(ARGUMENT, SMALL)
        asked: dict[str, Any]

    def doctor(target: object = None, **options: Any) -> Diagnosis:
        Said.asked = {"target": target, **options}
        if isinstance(Said.answer, BaseException):
            raise Said.answer
        return Said.answer

    monkeypatch.setattr(examination, "doctor", doctor)
    return Said


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["doctor", *map(str, arguments)])


@pytest.mark.parametrize(
    ("fail_on", "code"), [("none", 0), ("low", 1), ("moderate", 1), ("high", 0), (None, 0)]
)
def test_the_exit_code_is_by_the_worst_finding(said, fail_on, code):
    options = ["--fail-on", fail_on] if fail_on else []
    result = run("train.py:train", *options)
    assert result.exit_code == code, result.output
    assert "2 problems" in result.stdout
    said.answer = diagnosis(BIG)
    assert run("train.py:train", *options).exit_code == (0 if fail_on == "none" else 1)
    said.answer = diagnosis()
    assert run("train.py:train", *options).exit_code == 0


def test_options_reach_the_doctor(said):
    run(
        "a.b:c", "--select", "STK2, STK201", "--select", "small-shm", "--ignore", "STK201", "--batch-size", "4",
        "--num-workers", "0", "--time-limit", "9", "--memory-limit", "1.5G",
    )  # fmt: skip
    progress = said.asked.pop("progress")
    assert progress is None
    assert said.asked == {
        "target": "a.b:c",
        "select": ["STK2", "STK201", "small-shm"],
        "ignore": ["STK201"],
        "batch_size": 4,
        "num_workers": 0,
        "time_limit_s": 9.0,
        "memory_limit_bytes": 3 << 29,
        "ray": None,
    }
    result = run("a.b:c", "--verbose")
    assert said.asked["target"] == "a.b:c"
    said.asked["progress"]("scan", 1, 3)
    assert "Found nothing" in result.stdout


def test_misuse_is_code_2_and_one_sentence(said):
    for arguments in (
        ("--write",), ("--fix",), ("--bisect",), ("a:b", "--fix", "--json"), ("a:b", "--bisect", "--fix"),
        ("--select", "STK000"), ("--memory-limit", "much"), ("--memory-limit", "9" * 400),
        ("--memory-limit", "8388608T"), ("--fail-on", "bad"), ("a:b", "--bisect", "--format", "sarif"),
        ("--time-limit", "nan"), ("--time-limit", "inf"), ("--time-limit", "0"), ("--json", "--format", "sarif"),
    ):  # fmt: skip
        result = run(*arguments)
        assert result.exit_code == 2, arguments
        assert result.stdout == ""
    said.answer = TargetError("a:b raised ValueError: no", "File a.py, line 3", "printed before")
    result = run("a:b")
    assert (result.exit_code, result.stdout) == (2, "")
    assert (
        result.stderr == "stoker doctor: a:b raised ValueError: no\n  File a.py, line 3\n  printed before\n"
    )


def test_ctrl_c_shows_what_was_found_so_far(said):
    said.answer = diagnosis(BIG, interrupted=True)
    result = run("a:b", "--fail-on", "none")
    assert result.exit_code == 130
    assert "Stopped" in result.stdout
    said.answer = KeyboardInterrupt()
    assert run("a:b").exit_code == 130


def test_forms_and_files(said, tmp_path):
    assert json.loads(run("a:b", "--json").stdout)["format"] == "stoker-diagnosis"
    assert json.loads(run("a:b", "--format", "sarif").stdout)["version"] == "2.1.0"
    assert run("a:b", "--format", "github").stdout.startswith("::warning ")
    assert run("a:b", "--format", "markdown").stdout.startswith("**2 problems")
    path = tmp_path / "out.json"
    assert run("a:b", "--json", "--output", path).stdout == ""
    assert json.loads(path.read_text())["worst"] == "moderate"
    refused = run("a:b", "--output", path)
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    assert run("a:b", "--output", path, "--force").exit_code == 0
    assert json.loads(path.read_text())["format"] == "stoker-diagnosis"
    assert run("a:b", "--output", path.with_suffix(".txt")).exit_code == 0
    assert path.with_suffix(".txt").read_text().startswith("Examined")
    nowhere = run("a:b", "--output", tmp_path / "none" / "out")
    assert nowhere.exit_code == 2
    assert "cannot write" in nowhere.stderr


def test_the_list_has_every_check():
    lines = run("--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [each.code for each in catalogue()]


def test_help_is_there_without_torch_and_rich():
    script = (
        "import sys\nfrom click.testing import CliRunner\nfrom stoker.cli.main import main\n"
        "found = CliRunner().invoke(main, ['doctor', '--help'])\nassert '--fail-on' in found.output\n"
        "CliRunner().invoke(main, ['doctor', '--list'])\n"
        "print([name for name in ('torch', 'numpy', 'rich') if name in sys.modules])"
    )
    found = subprocess.run(["python", "-c", script], capture_output=True, text=True, check=True, env=_env())
    assert found.stdout.strip() == "[]"


def _env() -> dict[str, str]:
    return {**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}


def test_a_bar_on_a_terminal_goes_when_it_is_done(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with _progress(False) as tell:
        assert tell is not None
        tell("scan", 1, 4)
    shown = stream.getvalue()
    assert "Examining" in shown
    assert "scan" in shown
    assert shown.endswith("\x1b[2K")  # the line is wiped
    monkeypatch.setenv("TERM", "dumb")
    with _progress(False) as tell:
        assert tell is None


@pytest.fixture
def script(said, tmp_path, monkeypatch):
    """A file whose loader has a finding that can be fixed, below the working directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    said.answer = diagnosis(ARGUMENT, replace(BIG, severity="low"), facts={"target": target(str(path), 3)})
    return path


def test_a_patch_is_shown_and_written_only_when_asked_for(script, said):
    shown = run("train.py:train", "--fix", "--fail-on", "none")
    assert shown.exit_code == 0
    assert script.read_text() == SOURCE
    assert shown.stdout.startswith("--- a/train.py\n+++ b/train.py\n@@ ")
    assert "-    pin_memory=True,  # fast\n+    pin_memory=False,  # fast\n" in shown.stdout
    assert "stoker doctor train.py:train --fix --write" in shown.stderr
    subprocess.run(
        ["git", "apply", "--check", "-"], input=shown.stdout, text=True, check=True, cwd=script.parent
    )
    script.chmod(0o750)
    written = run("train.py:train", "--fix", "--write", "--fail-on", "none")
    assert written.exit_code == 0
    assert script.read_text() == SOURCE.replace("pin_memory=True", "pin_memory=False")
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    assert os.listdir(script.parent) == ["train.py"]
    again = run("train.py:train", "--fix", "--write", "--fail-on", "none")
    assert again.stdout == ""
    assert "Nothing to change" in again.stderr


def test_stokers_loader_is_the_fix_where_there_is_no_other(script, said):
    known = {"target": target(str(script), 3)}
    said.answer = diagnosis(BIG, facts=known)
    shown = run("train.py:train", "--fix")
    assert "-from torch.utils.data import DataLoader\n+from stoker import DataLoader\n" in shown.stdout
    assert can_be_made(BIG, known["target"])
    assert not can_be_made(SMALL, known["target"])
    assert not can_be_made(BIG, target(None))
    ours = target(str(script), 3, loader=loader(str(script), 3, engine="stoker"))
    assert fixes(diagnosis(BIG, facts={"target": ours})).patches == ()


def test_low_findings_are_patched_when_they_are_selected(script, said):
    said.answer = diagnosis(replace(ARGUMENT, severity="low"), facts={"target": target(str(script), 3)})
    shown = run("train.py:train", "--fix")
    assert shown.stdout == ""
    assert "(low: --select STK703 has it in the patch)" in shown.stderr
    assert "+    pin_memory=False" in run("train.py:train", "--fix", "--select", "STK703").stdout


def test_what_cannot_be_fixed_is_left_to_the_user(script, said):
    odd = replace(ARGUMENT, edit=Edit("--shm-size=8g", kind="shown"))
    lost = replace(ARGUMENT, edit=Edit("timeout=3", site="other.py:9"))
    said.answer = diagnosis(odd, lost, facts={"target": target(str(script), 3)})
    shown = run("train.py:train", "--fix")
    assert shown.stdout == ""
    assert shown.stderr.count("is left to you") == 2
    assert "its file is unknown" in shown.stderr


def test_a_file_that_changed_meanwhile_is_not_written(script, said):
    script.write_bytes(b"\xef\xbb\xbf" + SOURCE.replace("\n", "\r\n").encode() + b"# \xc3\xbc")
    (patch,) = fixes(said.answer).patches
    assert b"\\ No newline at end of file" in patch.diff()
    subprocess.run(["git", "apply", "--check", "-"], input=patch.diff(), check=True, cwd=script.parent)
    patch.write()
    assert script.read_bytes().startswith(b"\xef\xbb\xbffrom torch")
    assert script.read_bytes().count(b"\r\n") == 6
    with pytest.raises(FixError, match="has changed since"):
        patch.write()
    with pytest.raises(FixError, match="no longer be Python"):
        replace(patch, after=b"def").write()
    script.unlink()
    assert "cannot be read" in fixes(said.answer).refused[0].reason
    script.write_text("def")
    assert "is no Python" in fixes(said.answer).refused[0].reason


def test_a_symlink_stays_one(script, said, tmp_path):
    real = tmp_path / "real.py"
    script.rename(real)
    script.symlink_to(real)
    (patch,) = fixes(said.answer).patches
    patch.write()
    assert script.is_symlink()
    assert "pin_memory=False" in real.read_text()


UNGUARDED = """from torch.utils.data import DataLoader

loader = DataLoader(
    [1, 2, 3],
    num_workers=1,
    multiprocessing_context="fork",
)
total = 0
for batch in loader:
    total += int(batch)  # 6
"""


@pytest.mark.slow
def test_a_real_script_is_examined_patched_and_then_has_nothing_to_patch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "unguarded.py"
    path.write_text(UNGUARDED)
    written = run("unguarded.py:loader", "--select", "STK301", "--fix", "--write")
    assert written.exit_code == 0, written.output
    assert "Changed" in written.stderr
    assert path.read_text() == UNGUARDED.replace(
        "for batch in loader:\n    total += int(batch)  # 6\n",
        'if __name__ == "__main__":\n    for batch in loader:\n        total += int(batch)  # 6\n',
    )
    again = run("unguarded.py:loader", "--select", "STK301", "--json", "--fail-on", "low")
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["passed"] == ["STK301"]


def test_who_is_asked_to_end_tidies_up_first_and_says_by_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: Any, **__: Any) -> None:
        assert callable(signal.getsignal(signal.SIGTERM))
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(examination, "doctor", asked)
    assert CliRunner().invoke(main, ["doctor"]).exit_code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
