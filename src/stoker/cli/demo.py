"""``stoker demo``: shows on this machine what a loader costs, why, and what stoker changes."""

from __future__ import annotations

import click


@click.command()
@click.option("--quick", is_flag=True, help="Less of everything: under 40 seconds.")
def command(quick: bool) -> None:
    """Show on built-in data what a loader costs on this machine, why, and what stoker changes."""
    raise click.ClickException("not built yet")
