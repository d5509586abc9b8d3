"""A source text to edit: its syntax tree, its tokens, and where they lie."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple


class Refused(Exception):
    """A change that cannot be made safely, and why."""


class Replacement(NamedTuple):
    """What lies between two offsets becomes ``text``; both are the same where something is inserted."""

    start: int
    end: int
    text: str


class Token(NamedTuple):
    """A token by offsets; comments and line ends are none."""

    start: int
    end: int
    text: str


_NO_TOKENS = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


@dataclass(frozen=True)
class SourceText:
    """One version of the text: a change makes another. Raises SyntaxError where the text is no Python."""

    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def newline(self) -> str:
        return "\r\n" if "\r\n" in self.text else "\n"

    @cached_property
    def _lines(self) -> list[str]:
        # Not splitlines: Python's own lines end at "\n" only, and form feeds lie within them.
        return self.text.split("\n")

    @cached_property
    def _starts(self) -> list[int]:
        found = [0]
        for line in self._lines:
            found.append(found[-1] + len(line) + 1)
        return found

    @cached_property
    def _read(self) -> list[tuple[int, Token]]:
        read = tokenize.generate_tokens(io.StringIO(self.text, newline="").readline)
        return [
            (kind, Token(self._starts[row - 1] + column, self._starts[end_row - 1] + end_column, text))
            for kind, text, (row, column), (end_row, end_column), _ in read
        ]

    @cached_property
    def tokens(self) -> list[Token]:
        """Return all tokens that are neither comments nor white space."""
        return [token for kind, token in self._read if kind not in _NO_TOKENS]

    def has_comment(self, start: int, end: int) -> bool:
        """Whether one begins between these offsets."""
        return any(kind == tokenize.COMMENT and start <= token.start < end for kind, token in self._read)

    def line_start(self, line: int) -> int:
        """The offset of a line, the first of which is 1; the text's end for what lies beyond it."""
        return self._starts[line - 1] if line <= len(self._lines) else len(self.text)

    def line_end(self, offset: int) -> int:
        """Where the line that this offset is in ends, before its line end."""
        found = self.text.find("\n", offset)
        end = len(self.text) if found < 0 else found
        return end - 1 if end > offset and self.text[end - 1] == "\r" else end

    def line_of(self, offset: int) -> int:
        return self.text.count("\n", 0, offset) + 1

    def start(self, node: ast.expr | ast.stmt | ast.keyword | ast.alias) -> int:
        return self._offset(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt | ast.keyword | ast.alias) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.end_lineno, node.end_col_offset)

    def segment(self, node: ast.expr | ast.stmt | ast.keyword | ast.alias) -> str:
        return self.text[self.start(node) : self.end(node)]

    def indent(self, offset: int) -> str | None:
        """The white space before what is first on its line; None when something else is before it."""
        before = self.text[self.line_start(self.line_of(offset)) : offset]
        return before if not before.strip() else None

    def _offset(self, line: int, column_bytes: int) -> int:
        # The tree counts bytes, the text characters.
        text = self._lines[line - 1]
        column = column_bytes if text.isascii() else len(text.encode()[:column_bytes].decode(errors="ignore"))
        return self._starts[line - 1] + column

    def statement_at(self, line: int) -> int:
        """The number of the module's statement that this line is in, decorators included. Raises Refused where there is none."""
        for place, each in enumerate(self.tree.body):
            first = min([each.lineno, *(above.lineno for above in getattr(each, "decorator_list", ()))])
            if first <= line <= (each.end_lineno or each.lineno):
                return place
        raise Refused(f"there is no statement at line {line}")

    def changed(self, replacements: Iterable[Replacement]) -> str:
        """The text with all of them made. They do not overlap; of two at one place the first comes first."""
        parts, place = [], 0
        for start, end, text in sorted(replacements, key=lambda each: (each.start, each.end)):
            parts += [self.text[place:start], text]
            place = end
        return "".join(parts) + self.text[place:]
