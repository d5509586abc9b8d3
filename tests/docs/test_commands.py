"""The command lines of README and docs are run, or their options are parsed."""

from __future__ import annotations

import argparse
import ast
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

from examples import duel
from stoker import DataLoader
from stoker._record import journal
from stoker.cli.main import main
from tests import warm
from tests.docs.blocks import ROOT, Block, blocks_of, pages
from tests.docs.commands import EXITS, FINDINGS, PARSED, Command, bare, commands_of, lines_of
from tests.docs.folder import fill, record
from tests.docs.test_blocks import HEADING
from tests.docs.unreached import made
from tests.docs.unrun import COMMANDS

PAGES = [page for page in pages() if commands_of(page)]
ALL = [command for page in PAGES for command in commands_of(page)]
STOKER = """
from stoker.cli.main import main
from stoker._tools.render import chart_library
chart_library.script = lambda: ""  # it takes seconds to bundle, and the browser's tests have it
main(prog_name="stoker")
"""
BOUND_S = 60
LABELLED = ["docs/installing.md: stoker env"]
"""Screens whose lines begin with what they are about: all of these are compared. What is only there on some machines is not."""


def labels(screen: str) -> list[str]:
    return [each for each in re.findall(r"^(\S+(?: \S+)?) {2,}", screen, re.MULTILINE) if each != "variables"]


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
    context = parse(command.words[1:])
    if any(re.search(each, command.place) for each in PARSED):
        look_up(command, context)
        return
    with running() if command.words[1] == "top" else nullcontext():
        done = warm.run(["-c", STOKER, *command.words[1:]], timeout=BOUND_S)
    expected = {EXITS.get(command.place, 0)}
    if command.words[1] == "doctor" and expected == {0}:
        expected.add(FINDINGS)
    assert done.returncode in expected, (command.place, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    assert set(HEADING.findall(command.output)) <= set(HEADING.findall(done.stdout + done.stderr))
    if command.place in LABELLED:
        assert labels(command.output) == labels(done.stdout)


@contextmanager
def running() -> Iterator[None]:
    """A loader in the middle of its epoch, for those who look at loaders that run."""
    dataset: Any = range(8)
    with DataLoader(dataset, num_workers=1) as loader:
        iterator = iter(loader)
        next(iterator)
        yield
        del iterator


def parse(words: list[str]) -> dict[str, Any]:
    """As the command line does, up to the point where the command would begin: what it was given."""
    with main.make_context("stoker", list(words)) as context:
        name, command, rest = main.resolve_command(context, list(words))
        assert command is not None, words
        with command.make_context(name, rest, parent=context) as own:
            return own.params


def look_up(command: Command, given: dict[str, Any]) -> None:
    """What is only parsed has to find its files and what it names in them; what it would write is there for those that follow."""
    for name in ("target", "step", "script"):
        if value := given.get(name):
            assert is_there(value), (command.place, value)
    if read := given.get("record"):
        assert Path(read).exists(), (command.place, read)
    if "script" in given and given["output"]:
        journal.write(record(), Path(given["output"]))


def is_there(target: str) -> bool:
    """``train.py``, ``train.py:loader`` or ``my.package.data:make``, in the page's folder or in the repository; or a launcher."""
    if target in COMMANDS:
        return True
    place, _, name = target.partition(":")
    relative = place if place.endswith(".py") else place.replace(".", "/") + ".py"
    for folder in (Path(), ROOT):
        if (folder / relative).is_file():
            tree = ast.parse((folder / relative).read_text())
            return not name or name in made(tree)
    return False


def parse_within(command: Command) -> None:
    """What is stoker's in the command of another program; and that program's own options, where it is here."""
    words = command.words
    if "stoker" in words:
        parse(words[words.index("stoker") + 1 :])
    if words[0] == "torchrun":
        from torch.distributed.run import get_args_parser

        options = get_args_parser().parse_args(words[1:])
        script = options.training_script
        if script != "stoker":
            parse_module(script.removesuffix(".py").replace("/", "."), options.training_script_args)


def make(command: Command) -> None:
    """There is such a target, and such a variable (``TORCH=2.6.0``)."""
    text = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", text, re.MULTILINE))
    variables = set(re.findall(r"^([A-Z]+) +\?=", text, re.MULTILINE))
    given = {word for word in command.words[1:] if "=" in word}
    assert set(command.words[1:]) - given <= targets, command.place
    assert {word.partition("=")[0] for word in given} <= variables, command.place


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
        parse_module(words[0].removesuffix(".py").replace("/", "."), words[1:])
    else:
        done = warm.run(words, timeout=BOUND_S)
        assert done.returncode == 0, done.stderr


def parse_module(name: str, words: list[str]) -> None:
    if name == "stoker":
        parse(words)
        return
    assert name.partition(".")[0] in ("benchmarks", "examples"), name
    module = importlib.import_module(name if "." in name else f"{name}.__main__")
    begin = getattr(module, "main", lambda: duel.run(None, ""))

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
        begin()


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


EXAMPLES = sorted((ROOT / "examples").glob("[a-z]*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda each: each.stem)
def test_commands_of_examples_have_these_options(path: Path) -> None:
    """Those in the docstring, which ``--help`` prints; ``test_examples`` runs them."""
    told = ast.get_docstring(ast.parse(path.read_text())) or ""
    lines = re.findall(r"^ *((?:python|torchrun|stoker) .*)", told, re.MULTILINE)
    assert lines or path.stem == "duel"
    block = Block(f"examples/{path.name}", 1, "sh", "\n".join(lines), "")
    for command in lines_of(block):
        if command.words[0] == "stoker":
            look_up(command, parse(command.words[1:]))
        elif command.words[0] == "torchrun":
            parse_within(command)
        else:
            python(command)


def test_steps_of_a_workflow_have_these_options() -> None:
    found: list[Command] = []
    for block in chain(*map(blocks_of, pages())):
        if block.language == "yaml":
            lines = "\n".join(re.findall(r"run: (stoker .*)", block.source))
            found += lines_of(Block(block.page, block.line, "sh", lines, block.heading))
    assert found
    for command in found:
        parse(command.words[1:])


def test_what_is_not_there_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, "page.md")
    monkeypatch.chdir(tmp_path)
    assert is_there("train.py")
    assert is_there("train.py:make_loader")
    assert is_there("my.package.data:make")
    assert is_there("examples/large_arrays.py:loader")
    assert not is_there("train.py:no_such")
    assert not is_there("no_such.py")
    with pytest.raises(AssertionError, match="no-such"):
        parse_module("examples.ragged_text", ["--no-such"])


def test_every_entry_of_a_table_is_of_some_command() -> None:
    places = [each.place for each in ALL]
    assert [each for each in PARSED if not any(re.search(each, place) for place in places)] == []
    assert [each for each in EXITS if each not in places] == []
    words = {Path(part[0]).name for each in ALL for part in each.pipe}
    assert sorted(COMMANDS.keys() - words) == []
    assert [each for each in LABELLED if each not in places] == []


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
