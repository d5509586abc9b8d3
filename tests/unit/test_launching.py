"""How a script is started: whose options are whose, what the environment becomes, and what is refused."""

from __future__ import annotations

import importlib
import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from stoker._record import journal
from stoker._tools.profile import bootstrap, supervisor
from stoker.cli.command import script_command
from stoker.cli.main import main
from tests.unit.records import loader, run


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("python -m stoker profile -O x.py", ""),
        ("python -O -W error -Xdev -X utf8 -bbu -m stoker run x.py", "-O -W error -Xdev -X utf8 -bbu"),
        ("python -Wignore -Bm stoker run", "-Wignore -B"),
        ("python -sOc code run", "-sO"),
        ("python -P -E -m stoker", "-P -E"),
        ("python --check-hash-based-pycs always -u bin/stoker run -m x", "--check-hash-based-pycs always -u"),
        ("python -sP bin/stoker run x.py", ""),
        ("python -IuW -E bin/stoker run", "-uW -E"),
        ("python", ""),
    ],
)
def test_options_of_the_interpreter_are_passed_on(command: str, flags: str) -> None:
    assert supervisor.interpreter_flags(command.split()) == flags.split()


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ("-O -W error", None),
        ("-OI", "-I"),
        ("-s -E", "-E"),
        ("-S", "-S"),
        ("-WIES -XE -W -I", None),
        ("--IES", None),
    ],
)
def test_options_that_shut_stoker_off_are_found(flags: str, found: str | None) -> None:
    assert supervisor.shut_off(flags.split()) == found


@pytest.mark.parametrize("path", [None, "", "a", "a:b"])
def test_the_environment_comes_back_as_it_was(path: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    users = {"HOME": "/home/me", "STOKER_RECORD": "/of/an/outer/run"}
    if path is not None:
        users["PYTHONPATH"] = path
    made = supervisor.environment("profile", Path("/folder"), users, follow=False)
    first, *rest = made["PYTHONPATH"].split(":")
    assert (Path(first) / "sitecustomize.py").exists()
    assert ":".join(rest) == (path or "")
    armed: list[str] = []
    monkeypatch.setattr(bootstrap, "arm", armed.append)
    monkeypatch.setattr("os.environ", made)
    bootstrap.begin()
    assert made == {**users, "STOKER_RECORD": "/folder"}
    assert armed == ["profile"]


def test_the_environment_stays_where_processes_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = supervisor.environment("run", Path("/outer"), {"PYTHONPATH": "a"})
    again = supervisor.environment("run", Path("/inner"), made)
    assert again == {**made, "STOKER_RECORD": "/inner"}
    assert again["PYTHONPATH"].endswith(":a")
    armed: list[str] = []
    monkeypatch.setattr(bootstrap, "arm", armed.append)
    monkeypatch.setattr("os.environ", again)
    before = dict(again)
    bootstrap.begin()
    assert (again, armed) == (before, ["run"])
    assert supervisor.environment("run", Path("/alone"), made, follow=False)["STOKER_PYTHONPATH"] == "a"


@pytest.mark.parametrize(
    ("code", "text"), [(0, "0"), (3, "3"), (-9, "SIGKILL"), (-11, "SIGSEGV"), (-99, "signal 99")]
)
def test_an_end_in_words(code: int, text: str) -> None:
    assert supervisor.ScriptExit(1, code, 0, 0).text == text


def test_a_sentry_tells_when_a_module_has_been_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once each, after the module's own code; one that fails is awaited still; the loader is left as it was."""
    (tmp_path / "awaited_one.py").write_text("import awaited_two\ndone = True")
    (tmp_path / "awaited_two.py").write_text(
        "import builtins\nif not hasattr(builtins, 'mended'): raise ValueError"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    told: list[str] = []

    def tell(module: ModuleType) -> None:
        told.append(module.__name__)

    sentry = bootstrap.ImportWatcher({"awaited_one": tell, "awaited_two": tell, "absent": tell})
    monkeypatch.setattr(sys, "meta_path", [sentry, *sys.meta_path])
    with pytest.raises(ValueError):
        importlib.import_module("awaited_one")
    assert told == []
    monkeypatch.setattr("builtins.mended", True, raising=False)
    one = importlib.import_module("awaited_one")
    assert told == ["awaited_two", "awaited_one"]
    assert "exec_module" not in vars(one.__loader__)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("absent")
    assert sentry.awaits("absent")
    assert not sentry.awaits("awaited_one", "awaited_two")
    for name in ("awaited_one", "awaited_two"):
        del sys.modules[name]


def test_a_part_that_cannot_be_installed_is_told_and_no_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken, whole = ModuleType("broken"), ModuleType("whole")
    done: list[int] = []
    broken.install = lambda: 1 / 0  # type: ignore[attr-defined]
    whole.install = lambda: done.append(1)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "broken", broken)
    monkeypatch.setitem(sys.modules, "whole", whole)
    monkeypatch.setattr(bootstrap, "_PARTS", {"run": ("broken", "whole")})
    bootstrap.install("run")
    assert done == [1]
    assert capsys.readouterr().err == (
        "stoker: broken could not be installed, so loaders may be missing: ZeroDivisionError: division by zero\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("profile", "Missing argument 'SCRIPT'"),
        ("profile nope.py", "there is no script 'nope.py'"),
        ("profile python script.py", "Leave 'python' out: stoker profile script.py"),
        ("run srun script.py", "Let srun start stoker, once per rank: srun ... stoker run train.py"),
        ("run .", "without a __main__.py"),
        ("run -o taken.json script.py", "taken.json exists"),
        ("run --trace taken.json script.py", "taken.json exists"),
        ("run -o no/such/folder.json script.py", "cannot be written"),
        ("run -o a.json --verdict ./a.json script.py", "a.json is named twice"),
        ("run --force -o script.py script.py", "script.py is named twice"),
        ("run --watts -1 script.py", "--watts"),
        ("run --nope script.py", "No such option"),
    ],
)
def test_what_people_get_wrong(
    words: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told before anything runs, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    Path("taken.json").write_text("mine")
    Path("script.py").write_text("raise SystemExit('it ran')")
    found = CliRunner().invoke(main, words.split())
    assert found.exit_code == 2
    assert said in " ".join(found.output.split())
    assert Path("taken.json").read_text() == "mine"
    assert len(list(Path().iterdir())) == 2


def test_an_interpreter_that_cannot_be_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "script.py").write_text("")
    monkeypatch.setattr(sys, "orig_argv", ["python", "-I", "-m", "stoker"])
    found = CliRunner().invoke(main, ["run", str(tmp_path / "script.py")])
    assert found.exit_code == 2
    assert "Start stoker without -I." in found.output


def test_files_have_names_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the script; of a rank, with its number; one that is taken gets another."""
    monkeypatch.chdir(tmp_path)
    order = script_command.ScriptOptions(
        "run", False, "a/train.py", (), None, False, None, None, None, None, False
    )
    assert re.fullmatch(r"train-\d{8}-\d{6}\.stoker\.json", script_command._default(order).name)
    assert script_command._default(replace(order, module=True, script="a.b")).name.startswith("a-b-")
    assert script_command._default(replace(order, script="-")).name.startswith("stdin-")
    monkeypatch.setenv("RANK", "3")
    assert script_command._ranked(Path("run.json.gz")) == Path("run.json.gz")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert script_command._ranked(Path("b/run.json.gz")) == Path("b/run-rank3.json.gz")
    assert script_command._default(order).name.endswith("-rank3.stoker.json")
    path = tmp_path / "x.stoker.json"
    names = [script_command._write(run(), path, replace=each).name for each in (False, False, True, False)]
    assert names == ["x.stoker.json", "x-2.stoker.json", "x.stoker.json", "x-3.stoker.json"]


@pytest.mark.parametrize("how", ["broken", "unwritable", "whole"])
def test_records_stay_until_they_are_written(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A summary that fails leaves them where they are, and says so; the command ends as the script did all the same."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "script.py").write_text("")
    outcome = supervisor.ScriptExit(1, 3, 0, 0)

    def supervise(command: list[str], environ: dict[str, str]) -> supervisor.ScriptExit:
        journal.write(run(loader()), Path(environ["STOKER_RECORD"]) / "1-0.jsonl")
        if how == "unwritable":
            monkeypatch.setattr(journal, "write", refuse)
        return outcome

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    ended: list[supervisor.ScriptExit] = []
    monkeypatch.setattr(supervisor, "supervise", supervise)
    monkeypatch.setattr(supervisor, "end_as", ended.append)
    if how == "broken":
        monkeypatch.setattr("stoker._tools.report.verdict.verdict.judge", lambda *_, **__: 1 / 0)
    script_command.launch(
        script_command.ScriptOptions(
            "run", False, "script.py", (), None, False, None, None, None, None, False
        )
    )
    assert ended == [outcome]
    said = capsys.readouterr().err
    folders = list(tmp_path.glob("stoker-run-*"))
    assert len(folders) == (how != "whole")
    assert said.count(f"stoker report {tmp_path}") == (how != "whole")
    assert len(list(tmp_path.glob("*.stoker.json"))) == (how != "unwritable")
