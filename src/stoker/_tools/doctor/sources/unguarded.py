"""Reads from a script's text whether importing it starts workers. Nothing of it runs.

Only what runs at module level counts: statements outside functions, lambdas and guards, and the functions of the same file that
they call. A name is taken for a loader when it is assigned one in the same scope, or what a function of the file that returns
one gives. Nothing is run; what cannot be followed (attributes of objects, say) is not found.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

_LOADERS = ("DataLoader", "StatefulDataLoader")
_ITERATING = frozenset(
    {"iter", "next", "list", "tuple", "enumerate", "zip", "sum", "max", "min", "set", "sorted", "tqdm"}
)
_RUNNING = ("fit", "train", "validate", "evaluate", "eval", "test", "predict", "run", "main", "loop")
"""How names of functions and methods begin that iterate over a loader they are given."""
_ENDS = ("exit", "_exit")

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class UnguardedUse:
    """A statement at module level that starts workers: its line, and what it does in words."""

    line: int
    text: str


@dataclass(slots=True)
class _Scope:
    """Names that stand for loaders, where statements are being read."""

    loaders: set[str] = field(default_factory=set)
    holders: set[str] = field(default_factory=set)
    """Names of tuples, lists and dicts with loaders in them."""


def uses(source: str) -> tuple[UnguardedUse, ...]:
    """The unguarded statements that iterate over a loader with workers, in order. () for text that is no Python."""
    if not any(name in source for name in _LOADERS):
        return ()
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(_ModuleReader(tree).uses(_unguarded(tree.body)))


class _ModuleReader:
    def __init__(self, tree: ast.Module) -> None:
        self._classes = {*_LOADERS, *_aliases(tree)}
        self._functions = {node.name: node for node in ast.walk(tree) if isinstance(node, _Function)}
        self._running: set[str] = set()
        self._returning: set[str] = set()
        self._taking: set[str] = set()
        known = -1
        while known < (known := len(self._running) + len(self._returning) + len(self._taking)):
            around = self._globals(tree)
            for name, function in self._functions.items():
                self._judge(name, function, around)

    def uses(self, statements: list[ast.stmt]) -> Iterator[UnguardedUse]:
        """What these statements do, in one scope."""
        scope = _Scope()
        for statement in statements:
            for node in _here(statement):
                self._learn(node, scope)
                text = self._iterates(node, scope)
                if text:
                    yield UnguardedUse(getattr(node, "lineno", statement.lineno), text)

    def _judge(self, name: str, function: _Function, around: _Scope) -> None:
        """Whether a function of the file runs a loader, returns one, or runs one that it is given."""
        arguments = function.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        parameters = _Scope({each.arg for each in named})
        scope = _Scope(set(around.loaders), set(around.holders))
        for node in (each for statement in function.body for each in _here(statement)):
            self._learn(node, scope)
            if self._iterates(node, scope):
                self._running.add(name)
            given = node.value if isinstance(node, ast.Return) else None
            if given is not None and (self._is_loader(given, scope) or self._holds(given, scope)):
                self._returning.add(name)
            taken = node.iter if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension) else None
            if taken is not None and self._mentions(taken, parameters):
                self._taking.add(name)

    def _globals(self, tree: ast.Module) -> _Scope:
        scope = _Scope()
        for statement in tree.body:
            for node in _here(statement):
                self._learn(node, scope)
        return scope

    def _learn(self, node: ast.AST, scope: _Scope) -> None:
        value = getattr(node, "value", None)
        if not isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) or value is None:
            return
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name):
                for names, fits in ((scope.loaders, self._is_loader), (scope.holders, self._holds)):
                    (names.add if fits(value, scope) else names.discard)(target.id)
            elif isinstance(target, ast.Tuple) and self._holds(value, scope):
                scope.loaders |= {each.id for each in target.elts if isinstance(each, ast.Name)}

    def _is_loader(self, node: ast.AST, scope: _Scope) -> bool:
        if isinstance(node, ast.Name):
            return node.id in scope.loaders
        if isinstance(node, ast.Subscript):
            return self._holds(node.value, scope)
        if not isinstance(node, ast.Call):
            return False
        name = _name(node.func)
        return name in self._returning or (name in self._classes and _has_workers(node))

    def _holds(self, node: ast.AST, scope: _Scope) -> bool:
        if isinstance(node, ast.Name):
            return node.id in scope.holders
        if isinstance(node, ast.Call):
            return _name(node.func) in self._returning
        inside = node.values if isinstance(node, ast.Dict) else getattr(node, "elts", ())
        return any(self._is_loader(each, scope) for each in inside)

    def _mentions(self, node: ast.AST, scope: _Scope) -> bool:
        """Whether an expression gives a loader's batches: the loader, or calls like enumerate and tqdm around it."""
        if isinstance(node, ast.Call) and _name(node.func) not in self._classes | self._returning:
            return _name(node.func) not in ("len", "range") and any(
                self._mentions(each, scope) for each in node.args
            )
        return self._is_loader(node, scope)

    def _iterates(self, node: ast.AST, scope: _Scope) -> str:
        if isinstance(node, ast.For | ast.AsyncFor) and self._mentions(node.iter, scope):
            return f"for … in {_short(node.iter)}"
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            found = [each for each in node.generators if self._mentions(each.iter, scope)]
            return f"for … in {_short(found[0].iter)}" if found else ""
        if not isinstance(node, ast.Call):
            return ""
        name = _name(node.func)
        if name in self._running:
            return f"{name}(…)"
        given = [*node.args, *(each.value for each in node.keywords)]
        if any(self._is_loader(each, scope) for each in given) and (
            name in self._taking or (name not in self._functions and name.lstrip("_").startswith(_RUNNING))
        ):
            return f"{name}(…)"
        return _short(node) if name in _ITERATING - {"zip", "enumerate"} and self._given(node, scope) else ""

    def _given(self, call: ast.Call, scope: _Scope) -> bool:
        return any(self._mentions(each, scope) for each in call.args)


def _unguarded(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements of a module that run in every process that imports it."""
    found: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.If) and _guards(statement.test):
            found += _unguarded(statement.orelse)
        elif isinstance(statement, ast.If) and _turns_away(statement):
            break
        else:
            found.append(statement)
    return found


def _guards(test: ast.expr) -> bool:
    """Whether a condition holds in the main process only."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(_guards(each) for each in test.values)
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    sides = ast.dump(test)
    if isinstance(test.ops[0], ast.Eq | ast.In):
        return ("'__name__'" in sides and "'__main__'" in sides) or "'MainProcess'" in sides
    return isinstance(test.ops[0], ast.Is) and "'parent_process'" in sides


def _turns_away(statement: ast.If) -> bool:
    """Whether it ends an import: ``if __name__ != "__main__": sys.exit()``."""
    sides = ast.dump(statement.test)
    if "'__name__'" not in sides or "NotEq()" not in sides:
        return False
    last = statement.body[-1]
    called = last.value if isinstance(last, ast.Expr) else None
    return isinstance(last, ast.Raise) or (isinstance(called, ast.Call) and _name(called.func) in _ENDS)


def _here(statement: ast.AST) -> Iterator[ast.AST]:
    """A statement and all that runs with it, in the order of the text: not the bodies of functions, lambdas and guards."""
    if isinstance(statement, _Function | ast.Lambda):
        return
    if isinstance(statement, ast.If) and _guards(statement.test):
        for other in statement.orelse:
            yield from _here(other)
        return
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.NamedExpr):
        # What is on the right runs before the name is known.
        yield from (node for child in ast.iter_child_nodes(statement) for node in _here(child))
        yield statement
        return
    yield statement
    for child in ast.iter_child_nodes(statement):
        yield from _here(child)


def _aliases(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (each.asname for each in node.names if each.name in _LOADERS and each.asname)
        elif isinstance(node, ast.ClassDef) and any(_name(base) in _LOADERS for base in node.bases):
            yield node.name


def _has_workers(call: ast.Call) -> bool:
    """Whether it may start workers: ``num_workers`` is given and is not 0."""
    for keyword in call.keywords:
        if keyword.arg is None:
            return True  # **options
        if keyword.arg == "num_workers":
            return not (isinstance(keyword.value, ast.Constant) and keyword.value.value in (0, None))
    return len(call.args) > 5  # it is the sixth


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 40 else f"{text[:39]}…"
