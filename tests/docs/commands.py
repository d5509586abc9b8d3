"""The command lines of a page, and what is done with each: run, parsed, or looked up."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from tests.docs.blocks import Block, blocks_of

PARSED = {
    r"stoker (tune|bench) ": "tests/e2e/test_tune_command.py::test_one_command_answers_and_keeps_what_it_found",
    r"stoker demo\b": "tests/e2e/test_demo.py::test_acts_measure_what_they_say",
    r"stoker doctor (?!train.py($|:main))\S": (
        "tests/unit/doctor/test_doctor_command.py::test_a_real_script_is_examined_patched_and_then_has_nothing_to_patch"
    ),
    r"stoker top$": "tests/unit/test_top_command.py::test_lines_follow_each_other_until_ctrl_c",
    r"(?<!README.md: )stoker (profile|run) (-o \S+ )?train.py": (
        "tests/docs/test_commands.py::test_commands_do_what_the_page_says"  # README's
    ),
    r"stoker (profile|run) (torchrun|accelerate) ": "tests/frameworks/test_launchers.py",
    r"python examples/": "tests/e2e/test_examples.py",
}
"""Commands, as ``page: command``, that take more than two seconds: their options are parsed. And which test runs such a one."""

EXITS = {
    "docs/checks/STK907.md: stoker report train.log": 2,
    "docs/checks/STK908.md: stoker report trace.json": 2,
    "docs/checks/STK910.md: stoker doctor train.py": 2,
    "docs/checks/STK910.md: stoker doctor train.py:main": 2,
}
"""Those that are shown because they fail."""

FINDINGS = 1
"""With which ``stoker doctor`` ends when it found something, here as anywhere."""


@dataclass(frozen=True)
class Command:
    """One line, without its remark. ``output`` is what the page shows below it."""

    block: Block
    text: str
    output: str

    @property
    def place(self) -> str:
        """What tables know it by."""
        return f"{self.block.page}: {self.text}"

    @property
    def words(self) -> list[str]:
        """Of the first command of a pipe."""
        return self.pipe[0]

    @property
    def pipe(self) -> list[list[str]]:
        """Its commands."""
        lexer = shlex.shlex(self.text, posix=True, punctuation_chars="|")
        lexer.whitespace_split = True
        found: list[list[str]] = [[]]
        for word in lexer:
            if word == "|":
                found.append([])
            else:
                found[-1].append(word)
        return found


def commands_of(page: str) -> list[Command]:
    """In order."""
    return [
        each for block in blocks_of(page) if block.language in ("sh", "console") for each in lines_of(block)
    ]


def lines_of(block: Block) -> Iterator[Command]:
    """The commands of a block."""
    source = block.source.replace("\\\n", " ")
    if block.language == "sh":
        source = re.sub(r"^(?=\s*[^\s#])", "$ ", source, flags=re.MULTILINE)
    for part in re.split(r"^\$ ", source, flags=re.MULTILINE):
        line, _, output = part.partition("\n")
        if text := bare(line):
            yield Command(block, text, output)


def bare(line: str) -> str:
    """Without the remark at its end; a # within quotes or a word is none."""
    quote = ""
    for at, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#" and (at == 0 or line[at - 1].isspace()):
            return line[:at].strip()
    return line.strip()
