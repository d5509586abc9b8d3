"""Finds the fenced blocks of README and docs, all of them, and what is written between them for the tests alone.

Sybil's lexers find them. What runs them is our own: Sybil's items for pytest are one per block, and xdist would deal a page's,
which share their names, to different processes; the leak guard, too, looks at a test, and a loader lives as long as its page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from sybil import Document
from sybil.parsers.markdown.lexers import DirectiveInHTMLCommentLexer, RawFencedCodeBlockLexer

ROOT = Path(__file__).resolve().parents[2]

LANGUAGES = {
    "python": "run, all of a page as one program",
    "setup": "the same, in a comment: readers do not see it",
    "sh": "every line is a command, and run",
    "console": "lines that begin with $ are commands, and run; the headings of their output are compared",
    "yaml": "parsed",
    "json": "parsed",
    "toml": "parsed",
    "promql": "the names of its metrics are looked up",
    "text": "a picture, not code",
}
"""What is done about a block. One that has another language, or none, fails."""

_FENCES = RawFencedCodeBlockLexer(re.compile(r"(?P<info>[^\n]*)\n"))
_SETUPS = DirectiveInHTMLCommentLexer("setup")


@dataclass(frozen=True)
class Block:
    """A fenced block, or a comment of ``setup``. ``line`` is the one in its page on which the source begins, from 1."""

    page: str
    line: int
    language: str
    source: str
    heading: str

    @property
    def place(self) -> str:
        """Where to look."""
        return f"{self.page}:{self.line}"

    @property
    def first_line(self) -> str:
        """What an entry of ``unrun`` names it by: lines move, words stay."""
        return next((line.strip() for line in self.source.splitlines() if line.strip()), "")


def pages() -> list[str]:
    """All documents of the repository, relative to its root."""
    found = [
        ROOT / name
        for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
    ]
    found += [each for folder in ("docs", "examples", "benchmarks") for each in (ROOT / folder).rglob("*.md")]
    return sorted(str(each.relative_to(ROOT)) for each in found)


def text_of(page: str) -> str:
    """As it is stored."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks_of(page: str) -> list[Block]:
    """In order."""
    return list(parsed(page, text_of(page)))


def parsed(page: str, text: str) -> Iterator[Block]:
    """The blocks of a text. A fence within a block, which shows how a block is written, is a part of it."""
    document = Document(text, page)
    regions = [*_FENCES(document), *_SETUPS(document)]
    end = 0
    for region in sorted(regions, key=lambda each: (each.start, -each.end)):
        if region.start < end:
            continue
        end = region.end
        before = text[: region.start]
        source = str(region.lexemes["source"])
        info = region.lexemes.get("info")
        language = "setup" if info is None else re.split(r"[\s{]", str(info).strip(), maxsplit=1)[0]
        headings = re.findall(r"^#+ (.+)$", before, re.MULTILINE)
        yield Block(page, before.count("\n") + 2, language, dedent(source), headings[-1] if headings else "")


def prose_of(page: str) -> str:
    """The text without its blocks and comments, line for line where it was."""
    text = text_of(page)
    document = Document(text, page)
    for region in [*_FENCES(document), *_SETUPS(document)]:
        inside = text[region.start : region.end]
        text = text[: region.start] + re.sub(r"[^\n]", " ", inside) + text[region.end :]
    return re.sub(r"<!--.*?-->", lambda found: re.sub(r"[^\n]", " ", found[0]), text, flags=re.DOTALL)
