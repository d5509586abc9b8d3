"""What is not run, and why: the whole list. A block that is not run and not here fails, and so does an entry without a block."""

from __future__ import annotations

from typing import NamedTuple


class Unrun(NamedTuple):
    """A block of Python by its page and its first line; it is still compiled, and every name in it has to exist."""

    page: str
    first_line: str
    reason: str


PYTHON: list[Unrun] = []
