"""Chooses the form of a file by its name, the same in every command, and writes what has no form of its own as a report."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from stoker.cli.command.exit_status import require

SUFFIXES = {
    ".html": "html", ".htm": "html", ".md": "md", ".markdown": "md", ".json": "json", ".txt": "text", ".text": "text",
    ".sarif": "sarif",
}  # fmt: skip
"""By suffix: the form that it asks for. A name with another suffix asks for none."""


def chosen(output: Path | None, forms: Sequence[str], otherwise: str) -> str:
    """The form that a file's name asks for, ``otherwise`` where it asks for none. A usage error for one not in ``forms``."""
    form = None if output is None else SUFFIXES.get(output.suffix.lower())
    names = [suffix for suffix, each in SUFFIXES.items() if each in forms]
    require(
        form is not None and form not in forms,
        f"{output} asks for a form that is not written here: name a file that ends in {' or '.join(names)}",
    )
    return form or otherwise


def write_report(document: str, form: str, output: Path) -> None:
    """The report about one document, as ``stoker report`` makes it of the document's file."""
    from stoker._host.private_files import temporary_base, write_file
    from stoker.cli.command import output_file

    with tempfile.TemporaryDirectory(prefix="stoker-page-", dir=temporary_base()) as folder:
        path = Path(folder) / "document.json"
        write_file(path, document.encode("utf-8", "replace"))
        output_file.write([path], form, output)
