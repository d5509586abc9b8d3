"""Edits the call that makes a loader: its arguments and its dataset."""

from __future__ import annotations

import ast

from stoker._tools.doctor.patches.source import Refused, Replacement, SourceText, Token
from stoker.arguments import ARGUMENTS

_POSITIONS = tuple(each.name for each in ARGUMENTS if each.positional)


def loader_call(source: SourceText, line: int | None) -> ast.Call:
    """The call of a loader's class that this line is in; without a line, the only one there is. Raises Refused."""
    aliases = {
        alias.asname
        for each in ast.walk(source.tree)
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
        if alias.name == "DataLoader" and alias.asname
    }
    calls = [each for each in ast.walk(source.tree) if isinstance(each, ast.Call)]
    if line is not None:
        calls = [each for each in calls if each.lineno <= line <= (each.end_lineno or each.lineno)]
    exact = [each for each in calls if called_name(each) in {"DataLoader", *aliases}]
    found = exact or [each for each in calls if called_name(each).endswith("Loader")]
    where = "in the file" if line is None else f"at line {line}"
    if len(found) != 1:
        raise Refused(
            f"there is no call of a DataLoader {where}"
            if not found
            else f"there are {len(found)} calls of a DataLoader {where}"
        )
    if not exact and _own_arguments(source, called_name(found[0])):
        raise Refused(f"{called_name(found[0])} has arguments of its own: change its class")
    if not any(token.start == source.start(found[0]) for token in source.tokens):
        raise Refused("its call stands in a string")  # an f-string: positions within it cannot be relied on
    return found[0]


def _own_arguments(source: SourceText, name: str) -> bool:
    """Whether this file has a class of the name that takes other arguments than the one it is made of."""
    return any(
        isinstance(each, ast.ClassDef)
        and each.name == name
        and any(
            isinstance(part, ast.FunctionDef) and part.name in ("__init__", "__new__") for part in each.body
        )
        for each in ast.walk(source.tree)
    )


def called_name(call: ast.Call) -> str:
    """The last part of what is called: "DataLoader" for ``torch.utils.data.DataLoader(...)``, "" for what has no name."""
    function = call.func
    if isinstance(function, ast.Subscript):  # DataLoader[Sample](...)
        function = function.value
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def keyword_arguments(text: str) -> dict[str, str]:
    """What "a=1, b=f(2)" says. Raises Refused when it is no such text."""
    try:
        tree = ast.parse(f"f({text})", mode="eval").body
    except SyntaxError:
        tree = None
    if not isinstance(tree, ast.Call) or tree.args or any(each.arg is None for each in tree.keywords):
        raise Refused(f"{text!r} is no keyword argument")
    source = SourceText(f"f({text})")
    return {each.arg: source.segment(each.value) for each in tree.keywords if each.arg}


def given(call: ast.Call, name: str) -> ast.expr | None:
    """The argument of this name, however it was passed; None when it is left out. Raises Refused if that is unknown."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if name in _POSITIONS:
        before = call.args[: _POSITIONS.index(name) + 1]
        for each in before:
            if isinstance(each, ast.Starred):
                raise Refused(f"{name} may be in *{ast.unparse(each.value)}: change it there")
        if len(before) == _POSITIONS.index(name) + 1:
            return before[-1]
    if any(each.arg is None for each in call.keywords):
        value = next(each.value for each in call.keywords if each.arg is None)
        raise Refused(f"{name} may be in **{ast.unparse(value)}: change it there")
    return None


def put(source: SourceText, call: ast.Call, name: str, value: str) -> list[Replacement]:
    """The argument is given this value: nothing when it has it. Raises Refused."""
    present = given(call, name)
    if present is None:
        return added(source, call, [f"{name}={value}"])
    if ast.dump(present) == ast.dump(ast.parse(value, mode="eval").body):
        return []
    _nameless(present, name)
    if isinstance(present, ast.Name | ast.Attribute):  # a variable or an option of the user's
        present = _assigned(source, present, name)
    return [Replacement(source.start(present), source.end(present), value)]


def _assigned(source: SourceText, value: ast.expr, name: str) -> ast.expr:
    """The constant that a variable is set to, once, for this argument alone. Raises Refused: then the user has to choose."""
    there = f"{name} is given by {ast.unparse(value)}: change it there"
    if not isinstance(value, ast.Name):
        raise Refused(there)
    uses = [each for each in ast.walk(source.tree) if isinstance(each, ast.Name) and each.id == value.id]
    read = [each for each in uses if isinstance(each.ctx, ast.Load)]
    bound = [each for each in ast.walk(source.tree) if isinstance(each, ast.arg) and each.arg == value.id]
    assigned = [
        each
        for each in ast.walk(source.tree)
        if isinstance(each, ast.Assign)
        and len(each.targets) == 1
        and ast.unparse(each.targets[0]) == value.id
    ]
    if (
        len(uses) != 2
        or len(read) != 1
        or bound
        or len(assigned) != 1
        or not isinstance(assigned[0].value, ast.Constant)
    ):
        raise Refused(there)
    return assigned[0].value


def taken_out(source: SourceText, call: ast.Call, name: str) -> list[Replacement]:
    """The keyword argument is removed, with its line when it has one of its own. Raises Refused."""
    keyword = next((each for each in call.keywords if each.arg == name), None)
    if keyword is None:
        if given(call, name) is not None:
            raise Refused(f"{name} is passed by its position")
        return []
    _nameless(keyword.value, name)
    start, end = source.start(keyword), source.end(keyword)
    after = next(each for each in source.tokens if each.start >= end)
    if after.text == ",":
        end = after.end
    rest = source.text[end : source.line_end(end)].strip()
    if source.indent(start) is not None and (not rest or rest.startswith("#")):
        line_end = source.text.find("\n", end)
        return [Replacement(source.line_start(keyword.lineno), line_end + 1, "")]
    if after.text == ",":
        following = next(each for each in source.tokens if each.start >= end)
        return [
            Replacement(start, end if following.text == ")" else _bare(source, start, following.start), "")
        ]
    before = [each for each in source.tokens if each.end <= start]
    start = before[-1].start if before[-1].text == "," else before[-1].end
    return [Replacement(start, _bare(source, start, end), "")]


def wrapped(source: SourceText, call: ast.Call, function: str, rest: str = "") -> list[Replacement]:
    """The dataset is passed through ``function``, with ``rest`` behind it: nothing when it is already. Raises Refused."""
    dataset = given(call, "dataset")
    if dataset is None:
        raise Refused("it has no dataset")
    if isinstance(dataset, ast.Call):
        written = ast.unparse(dataset.func).removeprefix("stoker.")
        if written == function.removeprefix("stoker."):
            return []
        if written == "cache":
            raise Refused("its dataset is a cache: change what is inside")
    if isinstance(dataset, ast.GeneratorExp | ast.NamedExpr):
        raise Refused("its dataset is an expression that cannot be wrapped")
    return [
        Replacement(source.start(dataset), source.start(dataset), f"{function}("),
        Replacement(source.end(dataset), source.end(dataset), f"{rest})"),
    ]


def added(source: SourceText, call: ast.Call, texts: list[str]) -> list[Replacement]:
    """Arguments behind the last one, on lines of their own where that has one. Raises Refused."""
    close = source.end(call) - 1
    before = [each for each in source.tokens if each.end <= close]
    last = before[-1]
    if not call.args and not call.keywords:
        raise Refused("it has no arguments")
    comma = last.text == ","
    arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    argument = max(source.start(each) for each in arguments)
    indent = source.indent(_opened(before, argument))
    if indent is None or (comma and source.line_of(last.end) == source.line_of(close)):
        text = ", ".join(texts)
        return [Replacement(last.end, last.end, f" {text}," if comma else f", {text}")]
    start = source.newline + indent + f",{source.newline}{indent}".join(texts)
    if comma:
        end = source.line_end(last.end)
        return [Replacement(end, end, start + ",")]
    if source.line_of(last.end) == source.line_of(close):
        return [Replacement(last.end, last.end, "," + start)]
    end = source.line_end(last.end)
    if end == last.end:
        return [Replacement(end, end, "," + start)]
    return [Replacement(last.end, last.end, ","), Replacement(end, end, start)]


def _opened(tokens: list[Token], start: int) -> int:
    """Where an argument begins with the parentheses around it, which its node leaves out."""
    place = next(number for number, each in enumerate(tokens) if each.start >= start)
    while tokens[place - 1].text == "(" and tokens[place - 2].text in ("(", ","):
        place -= 1
    return tokens[place].start


def _nameless(value: ast.expr, name: str) -> None:
    """Raises Refused when a value that is to go gives something a name, which may be used elsewhere."""
    if any(isinstance(each, ast.NamedExpr) for each in ast.walk(value)):
        raise Refused(f"{name} is given by {ast.unparse(value)}: change it there")


def _bare(source: SourceText, start: int, end: int) -> int:
    """``end``, when nothing between would be lost with it. Raises Refused for a comment."""
    if source.has_comment(start, end):
        raise Refused("a comment stands between its arguments")
    return end
