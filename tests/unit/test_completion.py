"""What a shell is told when somebody presses the tab key."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess

import pytest
from click.testing import CliRunner

from stoker._tools.doctor.catalogue import catalogue
from stoker.cli.main import _COMMANDS, main


def completed(typed: str, shell: str = "bash") -> list[str]:
    """Of what is typed so far, the last word is completed: what the script would get."""
    words = shlex.split(typed + "x")[:-1] if typed.endswith(" ") else shlex.split(typed)
    if shell == "fish":
        asked = {"COMP_WORDS": shlex.join(words), "COMP_CWORD": "" if typed.endswith(" ") else words[-1]}
    else:
        asked = {"COMP_WORDS": typed, "COMP_CWORD": str(len(words) - (not typed.endswith(" ")))}
    asked["_STOKER_COMPLETE"] = f"{shell}_complete"
    found = CliRunner().invoke(main, [], prog_name="stoker", env=asked)
    assert found.exit_code == 0, found.output
    return found.output.splitlines()


def plain(typed: str) -> list[str]:
    return [line.removeprefix("plain,") for line in completed(typed)]


def test_commands_come_with_their_help_from_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.import_module", lambda name: pytest.fail(f"{name} is imported"))
    assert plain("stoker ") == sorted(_COMMANDS)
    assert plain("stoker re") == ["report"]
    assert "plain" in completed("stoker en", "zsh")
    assert _COMMANDS["env"][1] in completed("stoker en", "zsh")


@pytest.mark.parametrize("name", sorted(_COMMANDS))
def test_options_of_every_command_are_completed(name: str) -> None:
    assert "--help" in plain(f"stoker {name} --")


def test_values_are_completed() -> None:
    assert plain("stoker doctor --format ") == ["screen", "json", "sarif", "github", "markdown"]
    assert "STK201" in plain("stoker explain stk2")
    assert "STK1,STK201" in plain("stoker doctor --select STK1,STK20")
    assert plain("stoker completion ") == ["bash", "zsh", "fish"]
    for typed in (
        "tune tr",
        "doctor tr",
        "bench tr",
        "explain tr",
        "run tr",
        "profile train.py tr",
        "report tr",
    ):
        assert completed(f"stoker {typed}") == ["file,tr"], typed


def test_codes_are_told_with_the_names_of_their_checks() -> None:
    told = completed("stoker explain STK", "zsh")
    assert list(zip(told[1::3], told[2::3], strict=True)) == [(each.code, each.name) for each in catalogue()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_asks_in_the_variable_that_is_answered(shell: str) -> None:
    shown = CliRunner().invoke(main, ["completion", shell])
    assert shown.exit_code == 0
    assert f"_STOKER_COMPLETE={shell}_complete" in shown.output


def test_another_shell_is_refused() -> None:
    shown = CliRunner().invoke(main, ["completion", "csh"])
    assert shown.exit_code == 2
    assert "'csh' is not one of 'bash', 'zsh', 'fish'" in shown.output


def test_bash_takes_the_script() -> None:
    """As ``eval "$(stoker completion bash)"`` would, and then as the tab key."""
    bash = shutil.which("bash")
    assert bash is not None, "bash is missing: what it would say of the script cannot be told"
    script = CliRunner().invoke(main, ["completion", "bash"]).output
    pressed = (
        'stoker() { echo "plain,report"; }; export -f stoker\n'
        + script
        + "COMP_WORDS=(stoker re); COMP_CWORD=1\n"
        # env runs programs, not functions: the script's own call is answered by one of ours.
        'env() { echo "plain,report"; }\n_stoker_completion stoker; printf "%s\\n" "${COMPREPLY[@]}"; complete -p stoker'
    )
    told = subprocess.run(
        [bash, "--norc", "-c", pressed], capture_output=True, text=True, env={**os.environ, "IFS": ""}
    )
    assert told.stdout.splitlines() == ["report", "complete -o nosort -F _stoker_completion stoker"], (
        told.stderr
    )
