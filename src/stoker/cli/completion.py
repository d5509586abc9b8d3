"""``stoker completion``: prints the script that completes commands, options and values in a shell.

A shell asks at every press of a key: nothing here imports torch, and of the commands only the one that is being typed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

VARIABLE = "_STOKER_COMPLETE"
"""What the script sets when it asks for completions; click derives it from the command's name."""
SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the completion script of a SHELL: bash (4.4 or later), zsh or fish.

    \b
      bash   eval "$(stoker completion bash)"        in ~/.bashrc
      zsh    eval "$(stoker completion zsh)"         in ~/.zshrc, after compinit
      fish   stoker completion fish > ~/.config/fish/completions/stoker.fish

    To start the shell without running stoker, write the script to a file once and source that.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # click has all three
    click.echo(kind(context.find_root().command, {}, "stoker", VARIABLE).source(), nl=False)


def files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Whatever is a file: the shell knows best."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def codes(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Codes of the doctor's checks. Of several with commas between them, the last is completed."""
    import pkgutil

    from click.shell_completion import CompletionItem

    from stoker._tools.doctor import checks

    done, comma, last = incomplete.rpartition(",")
    # Files are named after their checks ("host/stk201_small_shm.py"). Importing all of them would take too long for a shell.
    groups = [
        f"{checks.__path__[0]}/{each.name}" for each in pkgutil.iter_modules(checks.__path__) if each.ispkg
    ]
    known = sorted(each.name.partition("_") for each in pkgutil.iter_modules(groups))
    return [
        CompletionItem(f"{done}{comma}{code.upper()}", help=name.replace("_", "-"))
        for code, _, name in known
        if code.upper().startswith(last.upper())
    ]


def codes_or_files(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Codes for what begins like one, files otherwise: a shell shows one kind at a time."""
    found = codes(context, parameter, incomplete) if incomplete else []
    return found or files(context, parameter, incomplete)
