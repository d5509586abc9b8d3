"""``stoker env``: what a bug report needs to say of this machine."""

from __future__ import annotations

import click


@click.command()
def command() -> None:
    """Print what a bug report needs: versions, machine, limits."""
    raise click.ClickException("not built yet")
