"""Fits code to a narrow screen, so that it can still be copied: comments go above their lines, long calls break at commas."""

from __future__ import annotations

import textwrap

_SHELLS = ("sh", "bash", "console", "shell")


def fitted(line: str, width: int, language: str = "python") -> list[str]:
    """One line of code in as few lines as fit. A line that cannot be broken without changing its meaning stays as it is."""
    if len(line) <= width:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    code, mark, comment = line.rstrip().partition("  # ")
    if mark and code.strip():
        above = textwrap.wrap(comment.strip(), width - len(indent) - 2, break_on_hyphens=False)
        return [*(f"{indent}# {each}" for each in above), *fitted(code.rstrip(), width, language)]
    if line.lstrip().startswith("# "):
        told = textwrap.wrap(line.strip()[2:], width - len(indent) - 2, break_on_hyphens=False)
        return [f"{indent}# {each}" for each in told]
    if language in _SHELLS:
        parts = _wrapped(line, width - 2, indent)
        return [*(f"{each} \\" for each in parts[:-1]), parts[-1]]
    if language == "text":
        return _wrapped(line, width, indent)
    return _broken(line, width, f"{indent}    ")


def _wrapped(line: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=f"{indent}    ",
        break_on_hyphens=False,
        break_long_words=False,
        drop_whitespace=True,
    )


def _broken(line: str, width: int, indent: str) -> list[str]:
    """Python, broken within brackets: behind the last comma that fits, else behind the last bracket that opens."""
    parts: list[str] = []
    depth = 0
    while len(line) > width:
        place, depth = _comma(line, width, depth)
        if place is None:
            break
        parts.append(line[:place].rstrip())
        line = indent + line[place:].lstrip()
    return [*parts, line]


def _comma(line: str, width: int, depth: int) -> tuple[int | None, int]:
    """Where to break, None if nowhere; and how many brackets are open there. ``depth``: how many are at the line's beginning."""
    found: tuple[int, int] | None = None
    opened: tuple[int, int] | None = None
    quote = ""
    least = len(line) - len(line.lstrip()) + 4
    for place, letter in enumerate(line[:width], 1):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "([{":
            depth += 1
            opened = (place, depth) if place > least else opened
        elif letter in ")]}":
            depth -= 1
        elif letter == "," and depth > 0 and line[place : place + 1] == " " and place > least:
            found = place, depth
    return found or opened or (None, depth)
