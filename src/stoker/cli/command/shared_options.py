"""Options that mean the same in every command that has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="JSON instead of the screen.")
force_option = click.option("--force", is_flag=True, help="Overwrite the file of --output.")


def output_option(text: str) -> Callable[[_Decorated], _Decorated]:
    """``-o FILE``, with the help text ``text``."""
    file = click.Path(path_type=Path, dir_okay=False)
    return click.option("-o", "--output", type=file, metavar="FILE", help=text)


def patch_options(what: str) -> Callable[[_Decorated], _Decorated]:
    """``--fix`` and ``--write``. ``what`` they print: "the change"."""
    fix = click.option("--fix", is_flag=True, help=f"Print {what} as a patch.")
    write = click.option("--write", is_flag=True, help=f"Print {what} as a patch, and apply it.")

    def decorate(command: _Decorated) -> _Decorated:
        return fix(write(command))

    return decorate
