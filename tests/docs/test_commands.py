"""The command lines of README and docs are run, or their options are parsed."""

from __future__ import annotations

import argparse
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any

import click
import pytest

from stoker import DataLoader
from stoker.cli.main import main
from tests import warm
from tests.docs.blocks import ROOT, pages
from tests.docs.commands import EXITS, FINDINGS, PARSED, Command, bare, commands_of
from tests.docs.folder import fill
from tests.docs.test_blocks import HEADING
from tests.docs.unrun import COMMANDS

PAGES = [page for page in pages() if commands_of(page)]
ALL = [command for page in PAGES for command in commands_of(page)]
STOKER = """
from stoker.cli.main import main
from stoker.report.page import library
library.script = lambda: ""  # it takes seconds to bundle, and the browser's tests have it
main(prog_name="stoker")
"""
BOUND_S = 60


@pytest.mark.parametrize("page", PAGES)
def test_commands_do_what_the_page_says(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, page)
    monkeypatch.chdir(tmp_path)
    for command in commands_of(page):
        word = Path(command.words[0]).name
        if word in COMMANDS:
            parse_within(command)
        else:
            DOERS[word](command)
        assert [each[0] for each in command.pipe[1:] if each[0] not in COMMANDS] == []


def stoker(command: Command) -> None:
    """Run it, or parse what takes long."""
    parse(command.words[1:])
    if any(re.search(each, command.place) for each in PARSED):
        return
    with running() if command.words[1] == "top" else nullcontext():
        done = warm.run(["-c", STOKER, *command.words[1:]], timeout=BOUND_S)
    expected = {EXITS.get(command.place, 0)}
    if command.words[1] == "doctor" and expected == {0}:
        expected.add(FINDINGS)
    assert done.returncode in expected, (command.place, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    assert set(HEADING.findall(command.output)) <= set(HEADING.findall(done.stdout + done.stderr))


@contextmanager
def running() -> Iterator[None]:
    """A loader in the middle of its epoch, for those who look at loaders that run."""
    dataset: Any = range(8)
    with DataLoader(dataset, num_workers=1) as loader:
        iterator = iter(loader)
        next(iterator)
        yield
        del iterator


def parse(words: list[str]) -> None:
    """As the command line does, up to the point where the command would begin."""
    with main.make_context("stoker", list(words)) as context:
        name, command, rest = main.resolve_command(context, list(words))
        assert command is not None, words
        with command.make_context(name, rest, parent=context):
            pass


def parse_within(command: Command) -> None:
    """What is stoker's in the command of another program; and that program's own options, where it is here."""
    words = command.words
    if "stoker" in words:
        parse(words[words.index("stoker") + 1 :])
    if words[0] == "torchrun":
        from torch.distributed.run import get_args_parser

        options = get_args_parser().parse_args(words[1:])
        assert options.training_script == "stoker" or (ROOT / options.training_script).exists()


def make(command: Command) -> None:
    """There is such a target."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(command.words[1:]) <= targets, command.place


def pip(command: Command) -> None:
    """There are such extras; what else is installed is what we need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    listed = [*project["dependencies"], *chain(*extras.values())]
    needed = {re.split(r"[\[<>=]", each)[0] for each in listed}
    assert command.words[1] == "install"
    for word in command.words[2:]:
        found = re.fullmatch(r"(stoker|\.)(?:\[(.+)\])?", word)
        if found is None:
            assert word in needed | {"-e", "torch"}, command.place
        elif found[2]:
            assert set(found[2].split(",")) <= extras.keys(), command.place


class Parsed(Exception):
    """The options were accepted."""


def python(command: Command) -> None:
    """A benchmark, whose options are parsed; a script of the page's folder, which is run; an example, which others run."""
    words = command.words[1:]
    if words[0] == "-m":
        parse_module(words[1], words[2:])
    elif any(re.search(each, command.place) for each in PARSED):
        assert (ROOT / words[0]).exists()
    else:
        done = warm.run(words, timeout=BOUND_S)
        assert done.returncode == 0, done.stderr


def parse_module(name: str, words: list[str]) -> None:
    if name == "stoker":
        parse(words)
        return
    assert name.partition(".")[0] == "benchmarks", name
    module = importlib.import_module(name if "." in name else f"{name}.__main__")

    def accept(parser: argparse.ArgumentParser, _: object = None) -> None:
        parser.exit = parser.error = refuse  # type: ignore[method-assign,assignment]
        real(parser, words)
        raise Parsed

    def refuse(*given: object) -> None:
        raise AssertionError(f"{name} {words}: {given}")

    real = argparse.ArgumentParser.parse_args
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Parsed):
        patch.setattr(argparse.ArgumentParser, "parse_args", accept)
        patch.setattr(sys, "argv", [name, *words])
        module.main()


def system(command: Command) -> None:
    """Harmless ones, of any Linux."""
    subprocess.run(command.words, check=True, capture_output=True, timeout=BOUND_S)


DOERS: dict[str, Callable[[Command], None]] = {
    "grep": system,
    "ls": system,
    "make": make,
    "pip": pip,
    "python": python,
    "stoker": stoker,
}
"""By the first word. One that is neither here nor in ``unrun`` fails."""


def test_every_entry_of_a_table_is_of_some_command() -> None:
    places = [each.place for each in ALL]
    assert [each for each in PARSED if not any(re.search(each, place) for place in places)] == []
    assert [each for each in EXITS if each not in places] == []
    words = {Path(part[0]).name for each in ALL for part in each.pipe}
    assert sorted(COMMANDS.keys() - words) == []


@pytest.mark.parametrize("named", PARSED.values())
def test_what_is_only_parsed_is_run_elsewhere(named: str) -> None:
    file, _, name = named.partition("::")
    assert f"def {name or 'test_'}" in (ROOT / file).read_text()


def test_fields_that_a_filter_takes_are_there() -> None:
    told = (ROOT / "docs/top.md").read_text()
    filters = [words[1] for each in ALL for words in each.pipe if words[0] == "jq"]
    fields = {name for each in filters for name in re.findall(r"\.(\w+)", each)}
    assert fields
    assert [name for name in fields if not re.search(f'[`"]{name}[`"]', told)] == []


@pytest.mark.parametrize("words", [["tune", "x", "--no-such"], ["no-such"], ["profile"]])
def test_a_wrong_option_is_found(words: list[str]) -> None:
    with pytest.raises(click.UsageError):
        parse(words)


def test_remarks() -> None:
    assert bare("a 'b # c' d#e   # f") == "a 'b # c' d#e"
    assert bare("# only") == ""
