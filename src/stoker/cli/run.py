"""``stoker run``."""

from __future__ import annotations

import click


@click.command()
def command() -> None:
    """Not there yet."""
    raise click.ClickException("not there yet")
