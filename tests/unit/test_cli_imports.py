"""How little the command line imports: ``stoker --help`` has to come at once. Times are in benchmarks/start.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stoker._record import journal
from stoker.cli.main import _COMMANDS
from tests.unit.records import loader, run
from tests.warm import environment

HEAVY = {
    "importlib.metadata",
    "email",
    "asyncio",
    "concurrent.futures",
    "multiprocessing",
    "unittest",
    "ctypes",
    "logging",
}
"""Of the standard library: 10 ms and more each. None of it is needed to print a help text."""

SCRIPT = """
import json, sys
before = set(sys.modules)
from stoker.cli.main import main
code = 0
try:
    main(sys.argv[1:], prog_name="stoker")
except SystemExit as end:
    code = end.code
print()
print(json.dumps([code, sorted(set(sys.modules) - before)]))
"""


def imported(*arguments: str, **variables: str) -> tuple[str, set[str]]:
    """What is printed, and what has been imported for it."""
    told = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        capture_output=True,
        text=True,
        env=environment(**variables),
    )
    assert told.returncode == 0, told.stderr
    *said, last = told.stdout.splitlines()
    code, names = json.loads(last)
    assert code in (0, None), told.stderr
    return "\n".join(said), set(names)


def packages(names: set[str]) -> set[str]:
    """Of others: what has to be installed for it."""
    return {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - {"__mp_main__"}


def ours(names: set[str]) -> set[str]:
    return {name for name in names if name.partition(".")[0] == "stoker"}


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_import_click_and_the_table(argument: str) -> None:
    said, names = imported(argument)
    assert "Commands:" in said or said.startswith("stoker, version ")
    assert packages(names) == {"stoker", "click"}
    assert ours(names) == {"stoker", "stoker.cli", "stoker.cli.main"}
    assert not names & HEAVY


def test_a_list_of_commands_is_completed_without_importing_one() -> None:
    said, names = imported(COMP_WORDS="stoker ", COMP_CWORD="1", _STOKER_COMPLETE="bash_complete")
    assert "plain,report" in said
    assert ours(names) == {"stoker", "stoker.cli", "stoker.cli.main"}


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("stoker explain STK20", "plain,STK201"),
        ("stoker report --fo", "plain,--force"),
        ("stoker doctor tr", "file,tr"),
    ],
)
def test_values_are_completed_without_torch(typed: str, expected: str) -> None:
    words = str(len(typed.split()) - 1)
    said, names = imported(COMP_WORDS=typed, COMP_CWORD=words, _STOKER_COMPLETE="bash_complete")
    assert expected in said.splitlines()
    assert packages(names) <= {"stoker", "click"}
    assert not any(name.startswith("stoker._tools.doctor.checks.") for name in names)


def test_env_tells_torchs_version_without_importing_it() -> None:
    said, names = imported("env")
    assert "torch         2." in said
    assert packages(names) <= {"stoker", "click"}


EXTRAS = (
    "PIL",
    "prometheus_client",
    "tensorboard",
    "vl_convert",
    "playwright",
    "cv2",
    "pandas",
    "polars",
    "pyarrow",
    "rich",
)
"""What may not be there, or is not needed where nobody looks at a terminal."""

WITHOUT = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""


def test_without_optional_packages_the_commands_work(tmp_path: Path) -> None:
    """Every command's help, and those that need no target, in one process. Loaders: ``make package``."""
    record = tmp_path / "run.json"
    journal.write(run(loader({("fetch", 0, "io"): 0.9})), record)
    asked = [[name, "--help"] for name in _COMMANDS]
    asked += [
        ["env"],
        ["explain", "STK201"],
        ["explain", "--list"],
        ["completion", "fish"],
        ["report", str(record)],
    ]
    asked += [["report", str(record), "--format", form] for form in ("md", "json", "text")]
    script = WITHOUT + (
        "from click.testing import CliRunner\n"
        "from stoker.cli.main import main\n"
        f"for words in {asked!r}:\n"
        "    found = CliRunner().invoke(main, words)\n"
        "    if found.exit_code or not found.output: print(words, found.output, repr(found.exception))\n"
        "print('torch' in sys.modules)\n"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment())
    assert (told.stdout, told.stderr) == ("False\n", "")
