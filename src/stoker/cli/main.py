"""``stoker``: finds the command and imports only that, so that ``stoker --help`` answers at once."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, cast

import click

from stoker import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_COMMANDS = {
    "advise": (
        "stoker.cli.advise",
        "Run a script for a while and say which edits would help, the best first.",
    ),
    "bench": (
        "stoker.cli.bench",
        "Compare torch's DataLoader and stoker's on your own dataset.",
    ),
    "completion": ("stoker.cli.completion", "Print the completion script for bash, zsh or fish."),
    "demo": (
        "stoker.cli.demo",
        "Show what a loader costs on this machine, and what stoker changes.",
    ),
    "doctor": (
        "stoker.cli.doctor",
        "Find what is broken in a dataset, a loader or this machine, or soon will be.",
    ),
    "env": ("stoker.cli.env", "Print the facts of this machine that a bug report needs."),
    "explain": (
        "stoker.cli.explain",
        "Explain an error, a log or a code (STK201), and name the fix.",
    ),
    "profile": ("stoker.cli.profile", "Run a script and say where it waited for data, and why."),
    "report": (
        "stoker.cli.report",
        "Show what a run record or a trace of torch.profiler contains.",
    ),
    "run": ("stoker.cli.run", "Run a script with stoker's DataLoader in place of torch's."),
    "top": ("stoker.cli.top", "Watch the loaders that are running now."),
    "tune": ("stoker.cli.tune", "Measure which num_workers and other settings are best, and say why."),
    "verify": (
        "stoker.cli.verify",
        "Compare receipts: did runs, ranks and legs see the data that they should?",
    ),
}
"""By name: the module, whose ``command`` it is, and one line of help."""

_INTERRUPTED = 130


class _Commands(click.Group):
    """A group whose commands are imported when they are asked for; the list of them comes from the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        try:
            return cast(click.Command, importlib.import_module(_COMMANDS[name][0]).command)
        except KeyboardInterrupt:
            sys.exit(_INTERRUPTED)

    def invoke(self, ctx: click.Context) -> Any:
        """Write what a command printed when it ends, to notice if that fails."""
        result = super().invoke(ctx)
        if sys.stdout is not None:
            sys.stdout.flush()
        return result

    def main(self, *args: Any, **options: Any) -> Any:
        """An answer that does not fit on a disk is told in a line: help and the version, too."""
        try:
            return super().main(*args, **options)
        except OSError as error:
            from stoker.cli.command.exit_status import unwritten

            unwritten(error)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in sorted(_COMMANDS.items())])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Names from the table: click's own would import every command for its line of help."""
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=text)
            for name, (_, text) in sorted(_COMMANDS.items())
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="stoker")
def main() -> None:
    """Find out why data loading is slow or broken, and what to change."""
