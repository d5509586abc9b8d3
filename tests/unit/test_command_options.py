"""Options mean one thing in all commands."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from stoker.cli.main import main


def commands() -> dict[str, click.Command]:
    context = click.Context(main)
    found = {name: main.get_command(context, name) for name in main.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def option(command: click.Command, name: str) -> click.Option | None:
    return next(
        (each for each in command.params if isinstance(each, click.Option) and name in each.opts), None
    )


@pytest.mark.parametrize("name", commands())
def test_one_meaning(name: str) -> None:
    command = commands()[name]
    as_json, output, fix, write = (
        option(command, each) for each in ("--json", "--output", "--fix", "--write")
    )
    assert as_json is None or (as_json.is_flag and "JSON" in str(as_json.help)), (
        "prints JSON instead of the screen"
    )
    assert output is None or "-o" in output.opts
    assert option(command, "-o") is output
    assert output is None or option(command, "--force") is not None, "overwrites only if asked to"
    assert (fix is None) == (write is None)
    assert fix is None or (fix.is_flag and "as a patch" in str(fix.help))
    assert write is None or (write.is_flag and "as a patch, and apply" in str(write.help))


def test_there_are_commands_to_look_at() -> None:
    assert sum(option(each, "--json") is not None for each in commands().values()) >= 8
    assert sum(option(each, "--fix") is not None for each in commands().values()) >= 2


@pytest.mark.parametrize("command", ["profile", "run", "advise"])
def test_a_link_to_itself_is_no_script(command: str, tmp_path: Path) -> None:
    """It ended with a traceback of pathlib."""
    link = tmp_path / "train.py"
    link.symlink_to(link)
    done = CliRunner().invoke(main, [command, str(link)])
    assert done.exit_code == 2
    assert "there is no script" in done.output
