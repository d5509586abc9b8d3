"""Reads from a training script's text what it does with its loaders. Nothing of it runs.

It is read as people write scripts: a loader is what ``DataLoader(...)`` is assigned to, a dataset what is given to it. Where a name
comes from elsewhere, nothing is concluded.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

_THROUGH = ("enumerate", "iter", "cycle", "islice", "tqdm", "trange", "zip")
"""Calls that iterate over what they are given."""

_FRAMEWORKS = ("lightning", "pytorch_lightning", "accelerate", "transformers", "fastai", "ignite", "composer")


@dataclass(frozen=True, slots=True)
class LoaderCall:
    """A call that makes a loader. ``name`` and ``dataset`` as they are written, "" when they are no names."""

    name: str
    dataset: str
    line: int
    keywords: dict[str, str]

    @property
    def persistent(self) -> bool:
        """Whether it says ``persistent_workers=True``."""
        return self.keywords.get("persistent_workers") == "True"


@dataclass(frozen=True, slots=True)
class EpochChange:
    """A statement that changes something between epochs: ``text`` is its beginning, as written."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class TrainingScript:
    """What was read; lines count from 1."""

    loaders: tuple[LoaderCall, ...]
    changes: tuple[tuple[str, EpochChange], ...]
    """Statements that assign to an attribute of something, or call its ``set_epoch``, in loops and in functions that are called
    for epochs: its name, and the statement."""
    shared: tuple[tuple[str, int, str], ...]
    """Names that are iterated twice at the same time: name, line, and how ("zip", "nested loops")."""
    sets_epoch: tuple[str, ...]
    """Whose ``set_epoch`` is called anywhere."""
    has_epochs: bool
    """Whether there is a loop over epochs: one that says so, or a loop around one over a loader."""
    defines_set_epoch: tuple[str, ...]
    """Classes with a method of that name."""
    framework: str
    """A training framework that it imports; "" without one. Frameworks call ``set_epoch`` by themselves."""

    def changes_of(self, names: Iterable[str], *, but: Iterable[str] = ()) -> tuple[EpochChange, ...]:
        """Return the changes to one of these names, or to something it holds.

        The ``.dataset`` of anything counts too, unless it is in ``but``.
        """
        wanted, others = tuple(f"{name}." for name in names if name), set(but)
        return tuple(
            change
            for owner, change in self.changes
            if f"{owner}.".startswith(wanted)
            or (".dataset." in f"{owner}." and owner.partition(".dataset")[0] not in others)
        )


@lru_cache(maxsize=4)
def read(source: str) -> TrainingScript | None:
    """None for text that is empty or no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    if not tree.body:
        return None
    found = _ScriptVisitor()
    found.visit(tree)
    return TrainingScript(
        tuple(found.loaders), tuple(found.changes), tuple(found.shared), tuple(found.sets_epoch), found.has_epochs,
        tuple(found.defines), found.framework,
    )  # fmt: skip


class _ScriptVisitor(ast.NodeVisitor):
    """Collects, on one way through the tree."""

    def __init__(self) -> None:
        self.loaders: list[LoaderCall] = []
        self.changes: list[tuple[str, EpochChange]] = []
        self.shared: list[tuple[str, int, str]] = []
        self.sets_epoch: list[str] = []
        self.defines: list[str] = []
        self.framework = ""
        self.has_epochs = False
        self._loops: list[list[str]] = []
        self._for_epochs = False
        self._named: dict[int, str] = {}

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            self._imported(each.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self._imported(node.module or "")

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if any(isinstance(each, ast.FunctionDef) and each.name == "set_epoch" for each in node.body):
            self.defines.append(node.name)
        self._in_new_scope(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outer, self._for_epochs = self._for_epochs, "epoch" in node.name and node.name != "set_epoch"
        self._in_new_scope(node)
        self._for_epochs = outer

    def visit_For(self, node: ast.For) -> None:
        names = list(_iterated(node.iter))
        for name in names:
            if any(name in outer for outer in self._loops):
                self.shared.append((name, node.lineno, "nested loops"))
        over_loader = any("loader" in name.lower() for name in names)
        self.has_epochs |= "epoch" in ast.unparse(node.target).lower() or bool(over_loader and self._loops)
        self._in_loop(node, names)

    def visit_While(self, node: ast.While) -> None:
        self._in_loop(node, [])

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._named.setdefault(id(node.value), dotted(target))
            self._changed(target, node)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._named[id(node.value)] = dotted(node.target)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._changed(node.target, node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        called = dotted(node.func)
        tail = called.rpartition(".")[2]
        if tail.endswith("DataLoader"):
            self._loader(node)
        elif tail == "zip":
            names = [name for each in node.args for name in _iterated(each)]
            for name in sorted({name for name in names if names.count(name) > 1}):
                self.shared.append((name, node.lineno, "zip"))
        elif tail == "set_epoch" and isinstance(node.func, ast.Attribute):
            owner = dotted(node.func.value)
            self.sets_epoch.append(owner)
            if self._loops or self._for_epochs:
                self.changes.append((owner, EpochChange(node.lineno, f"{owner}.set_epoch(...)")))
        self.generic_visit(node)

    def _imported(self, module: str) -> None:
        if module.partition(".")[0] in _FRAMEWORKS:
            self.framework = self.framework or module.partition(".")[0]

    def _in_new_scope(self, node: ast.AST) -> None:
        outer, self._loops = self._loops, []
        self.generic_visit(node)
        self._loops = outer

    def _in_loop(self, node: ast.For | ast.While, names: list[str]) -> None:
        self._loops.append(names)
        self.generic_visit(node)
        self._loops.pop()

    def _changed(self, target: ast.expr, statement: ast.stmt) -> None:
        owner = target.value if isinstance(target, ast.Attribute | ast.Subscript) else None
        if owner is not None and (self._loops or self._for_epochs) and dotted(owner):
            text = ast.unparse(statement).partition("\n")[0]
            self.changes.append((dotted(owner), EpochChange(statement.lineno, text)))

    def _loader(self, node: ast.Call) -> None:
        keywords = {each.arg: ast.unparse(each.value) for each in node.keywords if each.arg}
        dataset = dotted(node.args[0]) if node.args else keywords.get("dataset", "")
        dataset = dataset if dataset.replace(".", "").isidentifier() else ""
        self.loaders.append(LoaderCall(self._named.get(id(node), ""), dataset, node.lineno, keywords))


def _iterated(node: ast.expr) -> Iterator[str]:
    """Names that an expression iterates over."""
    if isinstance(node, ast.Call):
        if dotted(node.func).rpartition(".")[2] in _THROUGH:
            for each in node.args:
                yield from _iterated(each)
    elif name := dotted(node):
        yield name


def dotted(node: ast.expr) -> str:
    """ "self.train.dataset" for names and attributes of names, else ""."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := dotted(node.value)):
        return f"{owner}.{node.attr}"
    return ""
