"""Edits a module's statements: imports, environment variables, a function for workers."""

from __future__ import annotations

import ast
import builtins
import re
import sys

from stoker._tools.doctor.patches.calls import called_name, given, put
from stoker._tools.doctor.patches.source import Refused, Replacement, SourceText

_TORCH = ("torch.utils.data", "torch.utils.data.dataloader")
_MODULES = {
    "np": "import numpy as np",
    **{name: f"import {name}" for name in ("cv2", "numexpr", "numpy", "os", "random", "torch")},
}
"""What a worker's function may have to import, by the name it uses."""


def imported(source: SourceText, module: str) -> list[Replacement]:
    """``import module`` at the top: nothing when it is there."""
    body = source.tree.body
    for each in body:
        if isinstance(each, ast.Import) and any(
            alias.name == module and not alias.asname for alias in each.names
        ):
            return []
    imports = [each for each in body if isinstance(each, ast.Import | ast.ImportFrom) and not _future(each)]
    start = source.start(imports[0]) if imports else _top(source)
    if not imports:
        return [Replacement(start, start, f"import {module}{source.newline * 2}")]
    # Among plain imports by name, else before the first: both keep sorted imports sorted often enough.
    block = [each for each in imports if isinstance(each, ast.Import) and each.names[0].name < module]
    if block and source.indent(source.start(block[-1])) == "" and _ends_line(source, block[-1]):
        end = source.line_end(source.end(block[-1]))
        return [Replacement(end, end, f"{source.newline}import {module}")]
    return [Replacement(start, start, f"import {module}{source.newline}")]


def switched(source: SourceText, call: ast.Call) -> list[Replacement]:
    """The loader's class is stoker's. Raises Refused when it is called by a name whose import cannot be seen."""
    function = call.func.value if isinstance(call.func, ast.Subscript) else call.func
    if isinstance(function, ast.Attribute):
        written = ast.unparse(function)
        if written == "stoker.DataLoader":
            return []
        if written.endswith("data.DataLoader"):
            changed = Replacement(source.start(function), source.end(function), "stoker.DataLoader")
            return [changed, *imported(source, "stoker")]
        raise Refused(f"{written} is not torch's DataLoader by name")
    name = called_name(call)
    for each in ast.walk(source.tree):
        if not isinstance(each, ast.ImportFrom):
            continue
        for alias in each.names:
            if (alias.asname or alias.name) == name and alias.name == "DataLoader":
                if each.module == "stoker":
                    return []
                if each.module in _TORCH:
                    return _moved(source, each, alias)
    raise Refused(f"{name} is not imported from torch.utils.data in this file")


def _moved(source: SourceText, statement: ast.ImportFrom, alias: ast.alias) -> list[Replacement]:
    """One name of ``from torch.utils.data import …`` comes from stoker."""
    start = source.start(statement)
    if len(statement.names) == 1:
        match = re.compile(r"from\s+([\w.]+)").match(source.text, start)
        assert match is not None
        return [Replacement(match.start(1), match.end(1), "stoker")]
    indent = source.indent(start)
    if indent is None:
        raise Refused("its import shares a line with another statement")
    place = statement.names.index(alias)
    if place + 1 < len(statement.names):
        cut = (source.start(alias), source.start(statement.names[place + 1]))
    else:
        cut = (source.end(statement.names[place - 1]), source.end(alias))
    if source.has_comment(*cut):
        raise Refused("a comment stands in its import")
    line = f"from stoker import {source.segment(alias)}{source.newline}{indent}"
    return [Replacement(start, start, line), Replacement(*cut, "")]


def variable(source: SourceText, name: str, value: str) -> list[Replacement]:
    """A variable of the environment, unless it is set, before the first import that may read it: one that is not Python's own.

    Raises Refused when the file sets it otherwise.
    """
    body = source.tree.body
    first = next((place for place, each in enumerate(body) if _reads(each)), None)
    settings = [each for each in body[:first] if _setting(each) is not None]
    if first is None:
        first = next((place for place, each in enumerate(body) if not _preamble(each, place)), len(body))
    before = body[:first]
    for each in settings:
        if _setting(each) == name:
            if repr(value) not in ast.unparse(each):
                raise Refused(f"line {each.lineno} sets {name} to something else")
            return []
    text = f'os.environ.setdefault("{name}", "{value}")'
    if settings and _ends_line(source, settings[-1]):
        end = source.line_end(source.end(settings[-1]))
        return [Replacement(end, end, source.newline + text)]
    start = _start(source, body[first]) if first < len(body) else len(source.text)
    if source.indent(start) is None:
        raise Refused("its first import shares a line with another statement")
    known = any(
        isinstance(each, ast.Import) and any(alias.name == "os" and not alias.asname for alias in each.names)
        for each in before
    )
    end_line = source.newline
    if not known:
        text = f"import os{end_line * 2}{text}"
    elif before and isinstance(before[-1], ast.Import | ast.ImportFrom) and _bare_before(source, start):
        text = end_line + text
    if start and source.text[start - 1] != "\n":
        text = end_line + text
    return [Replacement(start, start, text + end_line * 2)]


def initialised(source: SourceText, call: ast.Call, statements: list[str]) -> list[Replacement]:
    """Every worker runs these first: a function with them, and the argument that passes it. Raises Refused."""
    present = given(call, "worker_init_fn")
    if present is not None and not (isinstance(present, ast.Constant) and present.value is None):
        if _has(source, present, statements):
            return []
        raise Refused(f"it has a worker_init_fn: put {'; '.join(statements)} into {ast.unparse(present)}")
    needed = _imports(statements)
    name, number = "prepare_worker", 1
    taken = {each.id for each in ast.walk(source.tree) if isinstance(each, ast.Name)}
    taken |= {each.name for each in ast.walk(source.tree) if isinstance(each, ast.FunctionDef | ast.ClassDef)}
    while name in taken:
        number += 1
        name = f"prepare_worker_{number}"
    holder = source.tree.body[source.statement_at(call.lineno)]
    start = _start(source, holder)
    if source.indent(start) is None:
        raise Refused("its statement shares a line with another")
    end_line = source.newline
    blocks = [f"{end_line}    ".join(lines) for lines in (needed, statements) if lines]
    body = f"{end_line}    " + f"{end_line}{end_line}    ".join(blocks)
    function = f"def {name}(worker_id):{body}{end_line * 3}"
    return [Replacement(start, start, function), *put(source, call, "worker_init_fn", name)]


def _has(source: SourceText, function: ast.expr, statements: list[str]) -> bool:
    """Whether a function of this file does all of this already."""
    for each in ast.walk(source.tree):
        if isinstance(each, ast.FunctionDef) and each.name == ast.unparse(function):
            done = {ast.dump(inner) for inner in each.body}
            return {ast.dump(inner) for text in statements for inner in ast.parse(text).body} <= done
    return False


def _imports(statements: list[str]) -> list[str]:
    """Return what has to be imported of the names that statements use. Raises Refused for unknown names."""
    tree = ast.parse("\n".join(statements))
    names = [each for each in ast.walk(tree) if isinstance(each, ast.Name)]
    own = {each.id for each in names if not isinstance(each.ctx, ast.Load)} | {"worker_id"}
    own |= {
        (alias.asname or alias.name).partition(".")[0]
        for each in ast.walk(tree)
        if isinstance(each, ast.Import | ast.ImportFrom)
        for alias in each.names
    }
    used = dict.fromkeys(each.id for each in names if each.id not in own and not hasattr(builtins, each.id))
    unknown = [each for each in used if each not in _MODULES]
    if unknown:
        raise Refused(f"the origin of {unknown[0]} is unknown")
    return sorted(_MODULES[each] for each in used)


def _reads(statement: ast.stmt) -> bool:
    """Whether it imports something that is not Python's own, in whatever it is nested."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    for each in ast.walk(statement):
        if isinstance(each, ast.Import):
            # ``import stoker`` imports nothing by itself.
            names = [alias.name for alias in each.names if alias.name != "stoker"]
        elif isinstance(each, ast.ImportFrom):
            names = [each.module or "." if not each.level else "."]
        else:
            continue
        if any(name.partition(".")[0] not in sys.stdlib_module_names for name in names):
            return True
    return False


def _setting(statement: ast.stmt) -> str | None:
    """The variable that a statement sets: ``os.environ.setdefault("X", …)`` or ``os.environ["X"] = …``."""
    match = re.match(r"os\.environ(?:\.setdefault\(|\[)'(\w+)'", ast.unparse(statement))
    return match[1] if match else None


def _future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _preamble(statement: ast.stmt, place: int) -> bool:
    """Whether new statements have to stand behind it: a docstring, an import."""
    string = (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
    return (place == 0 and string) or isinstance(statement, ast.Import | ast.ImportFrom)


def _top(source: SourceText) -> int:
    """Where the first statement goes that is neither docstring nor ``from __future__``."""
    for place, each in enumerate(source.tree.body):
        if not (
            _preamble(each, place) and (not isinstance(each, ast.Import | ast.ImportFrom) or _future(each))
        ):
            return _start(source, each)
    return len(source.text)


def _start(source: SourceText, statement: ast.stmt) -> int:
    """Where a statement begins, with its decorators and the comments right above it."""
    decorators = getattr(statement, "decorator_list", [])
    line = min([statement.lineno, *(each.lineno for each in decorators)])
    start = source.line_start(line) if decorators else source.start(statement)
    if source.indent(start) is None:
        return start
    while line > 1:
        above = source.text[source.line_start(line - 1) : source.line_start(line)].strip()
        if not above.startswith("#") or (line == 2 and above.startswith("#!")):
            break
        line -= 1
    return source.line_start(line) if line < statement.lineno else start


def _ends_line(source: SourceText, statement: ast.stmt) -> bool:
    rest = source.text[source.end(statement) : source.line_end(source.end(statement))].strip()
    return not rest or rest.startswith("#")


def _bare_before(source: SourceText, start: int) -> bool:
    """Whether the line above has text."""
    return bool(source.text[:start].rstrip(" ").removesuffix("\n").rpartition("\n")[2].strip())
