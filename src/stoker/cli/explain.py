"""``stoker explain``: says what an error is about, after the run."""

from __future__ import annotations

import click


@click.command()
@click.argument("what", metavar="FILE|CODE", required=False)
def command(what: str | None) -> None:
    """Explain an error: a log or traceback in FILE or on standard input, or the page of a CODE."""
    from stoker._doctor.catalogue import check_of

    check = check_of(what or "")
    click.echo(check.page if check else "not yet")
