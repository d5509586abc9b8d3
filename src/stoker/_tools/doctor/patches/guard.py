"""Puts ``if __name__ == "__main__":`` around the end of a script."""

from __future__ import annotations

import ast
import io
import tokenize

from stoker._tools.doctor.patches.calls import called_name
from stoker._tools.doctor.patches.source import Refused, Replacement, SourceText

_INDENT = "    "


def guarded(source: SourceText, line: int) -> list[Replacement]:
    """From the first statement that uses the loader to the last: under the guard. Nothing when there is a guard around it.

    ``line`` is where the loader is made, or where it is first used. What makes it stays where it is, so that others can still
    import it. Raises Refused when functions would vanish from workers with what goes under the guard.
    """
    body = source.tree.body
    place = source.statement_at(line)
    if isinstance(body[place], ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        raise Refused("the loader is made in a function: guard what calls it")
    if _is_guard(body[place]):
        return []
    first = _first_use(body, place)
    if first is None or _is_guard(body[first]):
        return []
    tail = body[first:]
    _require_simple(body[:first], tail)
    if source.indent(source.start(tail[0])) != "":
        raise Refused("its first statement shares a line with another")
    strings = _string_lines(source)
    start = source.line_start(tail[0].lineno)
    lines = source.text[start:].split("\n")
    shifted = [
        line if number in strings or not line.strip() else _INDENT + line
        for number, line in enumerate(lines, tail[0].lineno)
    ]
    text = f'if __name__ == "__main__":{source.newline}' + "\n".join(shifted)
    return [Replacement(start, len(source.text), text)]


def _first_use(body: list[ast.stmt], place: int) -> int | None:
    """The first statement that may iterate the loader: this one, unless it only gives a loader a name."""
    made = body[place]
    value = made.value if isinstance(made, ast.Assign | ast.AnnAssign) else None
    if not isinstance(value, ast.Call) or not called_name(value).endswith("Loader"):
        return place
    names = _bound([made])
    for number, each in enumerate(body[place + 1 :], place + 1):
        if names & _used(each):
            return number
    return None


def _require_simple(head: list[ast.stmt], tail: list[ast.stmt]) -> None:
    for each in tail:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            raise Refused(
                f"{each.name} is defined after it, and workers need what is defined: move it up first"
            )
        if isinstance(each, ast.Import | ast.ImportFrom):
            raise Refused("imports come after it, and workers need them: move them up first")
        if _is_guard(each):
            raise Refused("part of the script is under a guard already")
    bound = _bound(tail)
    for each in head:
        inner = [
            part
            for part in ast.walk(each)
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda)
        ]
        for function in inner:
            if lost := sorted(bound & _used(function)):
                raise Refused(f"{lost[0]} would be missing in workers: a function above it uses it")


def _is_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)


def _bound(statements: list[ast.stmt]) -> set[str]:
    return {
        each.id
        for statement in statements
        for each in ast.walk(statement)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }


def _used(node: ast.AST) -> set[str]:
    return {
        each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
    }


def _string_lines(source: SourceText) -> set[int]:
    """Lines that begin inside a string: indenting them would change it."""
    found: set[int] = set()
    opened: list[int] = []
    for token in tokenize.generate_tokens(io.StringIO(source.text, newline="").readline):
        name = tokenize.tok_name[token.type]
        if name == "STRING":
            found.update(range(token.start[0] + 1, token.end[0] + 1))
        elif name in ("FSTRING_START", "TSTRING_START"):
            opened.append(token.start[0])
        elif name in ("FSTRING_END", "TSTRING_END"):
            found.update(range(opened.pop() + 1, token.end[0] + 1))
    return found
