"""What is not run, and why: the whole list. A block that is not run and not here fails, and so does an entry without a block."""

from __future__ import annotations

from typing import NamedTuple


class Unrun(NamedTuple):
    """A block of Python by its page and its first line; it is still compiled, and every name in it has to exist."""

    page: str
    first_line: str
    reason: str


_PACKAGE = "needs a package that is not installed everywhere; tests/frameworks runs this"

PYTHON: list[Unrun] = [
    Unrun("docs/frameworks.md", "from accelerate import Accelerator", _PACKAGE),
    Unrun("docs/frameworks.md", "import transformers", _PACKAGE),
    Unrun("docs/frameworks.md", "import stoker", _PACKAGE),
]


COMMANDS = {
    "accelerate": "tests/frameworks runs it; the command of stoker's in it is parsed",
    "docker": "needs a daemon and an image",
    "export": "of the shell",
    "jq": "of the reader's machine; the fields that it takes are looked up",
    "srun": "needs Slurm; the command of stoker's in it is parsed",
    "sysctl": "of the system, and not everywhere",
    "torchrun": "starts processes for minutes; its options and the command of stoker's in it are parsed",
}
"""By its first word: a command that is not run."""
