"""Names and sizes in the source tree.

Each class name stands once, each module says what it is for, nothing is left unused, and words that were replaced stay away.
Folders and files are small enough to be read.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import stoker

SOURCE = Path(stoker.__file__).parent
CLONE = Path(__file__).parents[2]
TREES = {
    path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))
}
TESTS = {
    path.relative_to(CLONE).as_posix(): ast.parse(path.read_text())
    for folder in ("benchmarks", "tests")
    for path in sorted((CLONE / folder).rglob("*.py"))
}
CALLED_BY_OTHERS = {
    "on_save",  # the Trainer, of callbacks
    "_from_iterable", "issuperset",  # collections.abc.Set
    "emit",  # logging
    "handle_error", "log_message", "service_actions", "verify_request",  # http.server, socketserver
    "format_commands", "get_command", "list_commands",  # click
    "on_save_checkpoint",  # Lightning, of callbacks
    "persistent_id", "persistent_load",  # pickle
    "duplicate_for_child", "terminate",  # multiprocessing
    "LoaderMixin", "TrainedBatches",  # users
}  # fmt: skip
"""Names that only other packages and users call."""

DYNAMIC = re.compile(r"visit_|test_|_repr_")
"""Names that ast, pytest and notebooks look up."""


def _definitions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """Functions and classes of a module, and methods of its classes."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node
        if isinstance(node, ast.ClassDef):
            yield from _definitions(node.body)
        elif isinstance(node, ast.If | ast.Try):
            yield from _definitions([*node.body, *node.orelse])


def test_each_class_name_stands_once():
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(path)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_each_module_says_what_it_is_for():
    assert [path for path, tree in TREES.items() if not ast.get_docstring(tree)] == []


def _uses(tree: ast.AST) -> Iterator[str]:
    """Names that code loads, looks up or passes, and words in strings that are no docstrings."""
    blocks = (getattr(node, "body", None) for node in ast.walk(tree))
    lines = (line for block in blocks if isinstance(block, list) for line in block)
    remarks = {id(line.value) for line in lines if isinstance(line, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in remarks:
            yield from re.findall(r"\w+", node.value)


def _constants(tree: ast.Module) -> Iterator[str]:
    """Private names that a module assigns."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        yield from (each.id for each in targets if isinstance(each, ast.Name) and each.id.startswith("_"))


def test_everything_that_is_defined_is_used():
    used = {name for tree in TREES.values() for name in _uses(tree)}
    defined = {
        name
        for tree in TREES.values()
        for name in (*(each.name for each in _definitions(tree.body)), *_constants(tree))
        if not name.endswith("__") and not DYNAMIC.match(name)
    }
    assert defined - used - CALLED_BY_OTHERS == set()


def test_private_names_of_a_module_are_used_in_it():
    """Another module may use the same word for something of its own."""
    unused = []
    for path, tree in TREES.items():
        functions = {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
        private = {name for name in functions | {*_constants(tree)} if re.match("_[a-zA-Z]", name)}
        unused += [f"{path}: {name}" for name in private - {*_uses(tree)}]
    assert unused == []


REPLACED = """
vigil ward patient kin mishap concord seats echo lap bookmark pen tape handoff sift complaint scales rig stint toll ears witness
nursery inquest mourn pilot autopilot outset settling cargo freshness ledger hears heard
"""
"""Coined words that plain ones replaced (the table of words in the design). No module, class or function may have them."""


def _named(trees: Mapping[str, ast.Module]) -> set[str]:
    """Names of modules, folders, classes and functions."""
    names = {
        node.name
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }
    return names | {part.removesuffix(".py") for path in trees for part in path.split("/")}


@pytest.mark.parametrize("trees", [TREES, TESTS], ids=["src", "tests"])
def test_words_that_were_replaced_are_in_no_name(trees: Mapping[str, ast.Module]):
    parts = {name: re.findall(r"[A-Z]?[a-z]+", name) for name in _named(trees)}
    old = {f"{word}{end}" for word in REPLACED.split() for end in ("", "s")}
    assert {name for name, words in parts.items() if old & {word.lower() for word in words}} == set()


MOST_FILES = 15
MOST_LINES = 500
LONG = {
    "_record/recorder.py": "one object with one state, which hooks, readers and the journal share",
    "_runtime/engine/iteration.py": "one loop over one state; its ways for records, rests and copies differ in an order of calls",
    "_runtime/executors/process/executor.py": "the executor's contract on one selector; forwarding calls would cost time per batch",
    "_runtime/scheduler/scheduler.py": "one state machine: events that share its tables, each in a few lines",
    "arguments.py": "one table, with an entry of several lines per argument",
    "loader.py": "torch's interface: a third is the signature and its documentation",
}
"""Files that are longer, and why splitting them would not make them clearer."""


def test_folders_are_small():
    files = Counter(path.rpartition("/")[0] for path in TREES)
    assert {folder: count for folder, count in files.items() if count > MOST_FILES} == {}


def test_files_are_short_or_have_a_reason():
    lines = {path: (SOURCE / path).read_text().count("\n") for path in TREES}
    assert {path for path, count in lines.items() if count > MOST_LINES} == set(LONG)
    assert max(lines.values()) < 650


OF_OTHER_PACKAGES = {
    "_Popen", "_forkserver_address", "_forkserver_alive_fd", "_forkserver_pid",  # multiprocessing
    "_recv_bytes", "_send_bytes", "_on_queue_feeder_error",
    "_iterator", "_worker_info", "_workers_done_event", "_worker_pids_set", "_shutdown",  # torch
    "_torchdynamo_disable", "_torchdynamo_disable_msg",
    "_bit_generator",  # NumPy
    "_prefetch_next_batch",  # Ray Train
    "_stoker_resumes",  # a note on the loader, from one integration to another
}  # fmt: skip
"""Private attributes of objects that are not ours."""


def _set_from_outside(tree: ast.Module) -> Iterator[ast.Attribute]:
    """Private attributes that a module sets on objects whose class is in another module."""
    private = re.compile(r"_[a-zA-Z]")
    stored = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and private.match(node.attr)
    ]
    own = {node.attr for node in stored if ast.unparse(node.value) in ("self", "cls")}
    own |= {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }  # slots
    return (node for node in stored if node.attr not in own | OF_OTHER_PACKAGES)


def test_no_private_attribute_is_set_from_another_module():
    found = [
        f"{path}:{node.lineno}: {ast.unparse(node)}"
        for path, tree in TREES.items()
        for node in _set_from_outside(tree)
    ]
    assert found == []
