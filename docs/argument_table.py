"""Writes the table of stoker's own arguments: ``python docs/argument_table.py``, which ``make docs`` runs.

The rows come from ``stoker/arguments.py``. A test fails while the page has other rows.
"""

from __future__ import annotations

import re
from pathlib import Path

from stoker.arguments import OWN

PAGE = Path(__file__).with_name("moving-from-torch.md")
_HEADER = "| argument | default | meaning |\n|---|---|---|\n"
_TABLE = re.compile(re.escape(_HEADER) + r"(?:\|.*\n)*")


def table() -> str:
    """The table in Markdown, one row for each of stoker's own arguments."""
    return _HEADER + "".join(f"| `{each.name}` | `{each.default!r}` | {each.description} |\n" for each in OWN)


def updated(text: str) -> str:
    """The page's text with the table of today. Raises ValueError for a text without the table's header."""
    changed, count = _TABLE.subn(lambda _: table(), text)
    if count != 1:
        raise ValueError(f"{PAGE.name} should have the header of the table once, but has it {count} times")
    return changed


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
