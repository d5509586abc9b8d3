"""``stoker doctor``: says what is wrong, or will be, before the run."""

from __future__ import annotations

import click


@click.command()
@click.argument("target", required=False)
def command(target: str | None) -> None:
    """Examine TARGET (package.module:object or path/to/file.py:object): a Dataset, a DataLoader, or a function that returns one.

    Without TARGET the machine alone is examined.
    """
    from stoker._doctor.examination import doctor

    for finding in doctor(target).findings:
        click.echo(f"{finding.code} {finding.severity}: {finding.evidence}. {finding.advice}")
