"""The table of arguments: it agrees with the signature, with torch and with the docs. Checks refuse, and options say why."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import pickle
import re
import runpy
import subprocess
import sys
import typing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch.utils.data
from hypothesis import given
from hypothesis import strategies as st

import stoker
from stoker import arguments
from stoker._runtime.executors import registry
from stoker._tools.tune.knobs import KNOBS
from stoker.argument_numbers import MOST_WORKERS, parse_bytes
from stoker.arguments import (
    ARGUMENTS,
    BY_NAME,
    OWN,
    LeftOpen,
    Options,
    check,
    resolve,
)

DOCS = Path(__file__).parents[2] / "docs"
TABLE = SimpleNamespace(**runpy.run_path(str(DOCS / "argument_table.py")))

GOOD: dict[str, Any] = {
    "executor": None,
    "rng": "batch",
    "restarts": 2,
    "on_bad_sample": "raise",
    "memory_budget": None,
    "split_batches": None,
    "name": None,
    "num_workers": 2,
}


def resolved(**changed: Any) -> Options:
    return resolve(**{**GOOD, "prefetch_given": False, **changed})


def test_the_signature_is_the_table() -> None:
    parameters = inspect.signature(stoker.DataLoader.__init__).parameters
    signature = [
        (
            each.name,
            each.annotation.replace("arguments.", "").replace("'", '"'),
            each.default,
            each.kind is each.KEYWORD_ONLY,
        )
        for each in list(parameters.values())[1:]
    ]
    assert signature == [(each.name, each.type, each.default, not each.positional) for each in ARGUMENTS]


def test_every_executor_has_traits_and_a_maker() -> None:
    assert tuple(arguments.EXECUTORS) == tuple(registry.MAKERS) == typing.get_args(arguments.Executor)
    assert [each.name for each in arguments.EXECUTORS.values()] == list(arguments.EXECUTORS)
    assert arguments.executor_kind(None) is arguments.EXECUTORS["process"]
    assert not arguments.EXECUTORS[arguments.NO_WORKERS].workers


def test_code_asks_for_a_trait_and_never_for_the_name_of_an_executor() -> None:
    source = Path(arguments.__file__).parent
    found = [
        f"{path.relative_to(source)}:{each.lineno}: {ast.unparse(each)}"
        for path in source.rglob("*.py")
        for each in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(each, ast.Compare)
        and re.search(r"\b(executor|kind)\b", ast.unparse(each))
        and {part.value for part in ast.walk(each) if isinstance(part, ast.Constant)}
        & set(arguments.EXECUTORS)
    ]
    assert not found


def test_the_tuners_knobs_are_the_tunable_arguments() -> None:
    tunable = {each.name: each for each in ARGUMENTS if each.tunable}
    assert {each.name for each in KNOBS} == set(tunable)


def test_an_executor_that_a_newer_version_recorded_is_taken_for_one_on_another_host() -> None:
    kind = arguments.executor_kind("slurm")
    assert (kind.workers, kind.processes, kind.threads, kind.copies_dataset) == (True, False, False, True)


def test_owners_are_who_has_the_argument() -> None:
    theirs = inspect.signature(torch.utils.data.DataLoader.__init__).parameters
    torchs = {each.name for each in ARGUMENTS if each.owner == "torch"}
    assert not {each.name for each in OWN} & set(theirs)
    assert torchs >= set(theirs) - {"self"}  # an older torch has fewer


def test_the_docstring_explains_every_argument_in_order() -> None:
    text = inspect.getdoc(stoker.DataLoader) or ""
    explained = re.findall(r"^    (\w+): ", text.partition("Args:")[2], re.MULTILINE)
    assert explained == [each.name for each in ARGUMENTS]


def test_the_docs_table_is_up_to_date() -> None:
    text = TABLE.PAGE.read_text(encoding="utf-8")
    assert TABLE.updated(text) == text, "make docs writes it"


def test_the_docs_table_replaces_old_rows_and_nothing_else() -> None:
    header, rule, *rows = TABLE.table().splitlines()
    old = f"before\n\n{header}\n{rule}\n| `gone` | `1` | Old. |\n\n| another | table |\n"
    new = TABLE.updated(old)
    assert new == f"before\n\n{TABLE.table()}\n| another | table |\n"
    assert [row.split("`")[1] for row in rows] == [each.name for each in OWN]
    with pytest.raises(ValueError, match="0 times"):
        TABLE.updated("no table")


def test_the_list_of_differences_names_our_own() -> None:
    listed = ", ".join(f"`{each.name}`" for each in OWN)
    text = " ".join((DOCS / "differences.md").read_text(encoding="utf-8").split())
    assert f"{listed}. Each is an attribute" in text


@pytest.mark.parametrize("name", [each.name for each in OWN])
def test_every_argument_of_our_own_is_checked_by_the_constructor(name: str) -> None:
    with pytest.raises((TypeError, ValueError), match=name):
        stoker.DataLoader(range(4), **{name: object()})  # type: ignore[arg-type]


def test_an_unknown_argument_has_no_check() -> None:
    with pytest.raises(KeyError):
        check(num_workers=0, colour="red")


def test_flags_that_only_make_sense_for_our_own_are_on_no_other() -> None:
    for each in ARGUMENTS:
        own = each.owner == "stoker"
        assert own or not (each.check or each.bisected or each.benched)
        assert not (own and each.positional)
        assert not (each.benched and each.tunable)  # the tuner's setting says it already
        assert each.description.endswith(".")
    assert list(BY_NAME) == [each.name for each in ARGUMENTS]


def test_importing_the_table_imports_no_torch() -> None:
    code = "import sys, stoker.arguments; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("changed", "kind", "words"),
    [
        ({"executor": "slurm"}, ValueError, "executor='slurm'"),
        ({"executor": ["process"]}, ValueError, "executor should be one of"),
        ({"executor": "inline"}, ValueError, "num_workers=2"),
        ({"rng": None}, ValueError, "rng=None"),
        ({"rng": "Batch"}, ValueError, "rng='Batch'"),
        ({"restarts": -1}, ValueError, "restarts=-1"),
        ({"prefetch_epochs": 1}, TypeError, "prefetch_epochs should be a bool, but got int"),
        ({"prefetch_epochs": True, "lasting": False}, ValueError, "persistent_workers=True"),
        ({"prefetch_epochs": True, "iterable": True}, ValueError, "map-style"),
        ({"snapshot_every_n_steps": -1}, ValueError, "snapshot_every_n_steps=-1"),
        ({"snapshot_every_n_steps": "2"}, TypeError, "snapshot_every_n_steps should be an int, but got str"),
        ({"restarts": True}, TypeError, "restarts should be an int, but got bool"),
        ({"restarts": 1.0}, TypeError, "but got float"),
        ({"split_batches": 1}, TypeError, "split_batches should be a bool or None, but got int"),
        ({"threads_per_worker": 0}, ValueError, "threads_per_worker=0"),
        ({"threads_per_worker": 2.0}, TypeError, "threads_per_worker should be an int, but got float"),
        ({"threads_per_worker": True}, TypeError, "but got bool"),
        ({"threads_per_worker": 2, "executor": "thread"}, ValueError, "raise num_workers instead"),
        ({"threads_per_worker": 2, "iterable": True}, ValueError, "map-style"),
        ({"threads_per_worker": 2, "batched": False}, ValueError, "batch_size=None"),
        ({"name": 7}, TypeError, "name should be a string or None, but got int"),
        ({"memory_budget": "lots"}, ValueError, "'lots'"),
        ({"memory_budget": 0}, ValueError, "positive"),
        ({"memory_budget": 1.5}, TypeError, "but got float"),
    ],
)
def test_wrong_arguments_are_refused(changed: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind) as caught:
        check(**{**GOOD, **changed})
    assert type(caught.value) is kind
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"executor": "process"},
        {"executor": "thread"},
        {"executor": "inline", "num_workers": 0},
        {"rng": "sample"},
        {"rng": "torch"},
        {"restarts": 0},
        {"split_batches": False},
        {"threads_per_worker": 16},
        {"threads_per_worker": 16, "num_workers": 0},
        {"threads_per_worker": 1, "executor": "thread", "iterable": True, "batched": False},
        {"name": ""},
        {"memory_budget": "2GiB"},
    ],
)
def test_right_arguments_pass(changed: dict[str, Any]) -> None:
    check(**{**GOOD, **changed})


@pytest.mark.parametrize(
    ("given", "nbytes"),
    [
        (1, 1),
        (1 << 40, 1 << 40),
        ("1", 1),
        ("1b", 1),
        ("500 MB", 500_000_000),
        ("2GiB", 2 << 30),
        ("2gib", 2 << 30),
        (" 1.5 KiB ", 1536),
        ("3k", 3000),
        ("1T", 10**12),
        ("1TiB", 1 << 40),
    ],
)
def test_bytes_are_read(given: int | str, nbytes: int) -> None:
    assert parse_bytes(given) == nbytes


@pytest.mark.parametrize(
    "given", ["", "GiB", "-1", "1 PB", "1e9", "1,5 GB", "2 GiB of memory", "0", "0.4", "0 GB", -5]
)
def test_what_is_no_amount_of_memory_is_a_value_error(given: int | str) -> None:
    with pytest.raises(ValueError, match="memory_budget should be"):
        parse_bytes(given)


@given(st.integers(1, 1 << 50))
def test_a_number_means_itself_as_text_too(nbytes: int) -> None:
    assert parse_bytes(nbytes) == parse_bytes(str(nbytes)) == nbytes


def test_defaults_and_their_reasons() -> None:
    options = resolved()
    assert options == Options("process", "batch", 2, "raise", True, None, True, "loader", options.reasons)
    assert options.reasons["executor"] == "default"
    assert options.reasons["deepen"] == "prefetch_factor was left open"
    assert set(options.reasons) == {"executor", "split_batches", "memory_budget", "deepen"}


def test_what_the_user_gave_is_kept_and_said_so() -> None:
    options = resolved(
        executor="thread", split_batches=False, memory_budget="1MB", name="train", prefetch_given=True
    )
    assert (
        options.executor,
        options.split_batches,
        options.memory_budget_bytes,
        options.name,
        options.deepen,
    ) == (
        "thread",
        False,
        1_000_000,
        "train",
        False,
    )
    assert set(options.reasons.values()) == {"given"}


@pytest.mark.parametrize("executor", [None, "process", "thread", "inline"])
def test_without_workers_everything_is_inline(executor: str | None) -> None:
    options = resolved(executor=executor, num_workers=0)
    assert options.executor == "inline"
    assert options.reasons["executor"] == "num_workers is 0"


def test_options_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        resolved().rng = "torch"  # type: ignore[misc]


def test_a_number_left_open_is_an_int_and_survives_copies() -> None:
    number = LeftOpen(2)
    assert number == 2
    assert number * 3 == 6
    for again in (copy.deepcopy(number), pickle.loads(pickle.dumps(number))):
        assert type(again) is LeftOpen
        assert again == 2


@pytest.mark.parametrize("given", [4096, 10**18, 10**400, 10**5000], ids=["4096", "18", "400", "5000"])
@pytest.mark.parametrize("executor", ["process", "thread"])
def test_more_workers_than_there_can_be_are_refused_at_once(given: int, executor: str) -> None:
    """`iter(loader)` once made that many places for them, or raised OverflowError."""
    with pytest.raises(ValueError, match="num_workers should be at most 4095, but got") as raised:
        stoker.DataLoader(range(4), num_workers=given, executor=executor)  # type: ignore[arg-type]
    assert len(str(raised.value)) < 100
    loader: stoker.DataLoader[Any] = stoker.DataLoader(range(4), executor=executor)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at most 4095"):
        loader.num_workers = given


def test_the_most_workers_have_a_row_each_on_the_status_page() -> None:
    from stoker._runtime.protocol.status_page import MAX_WORKERS

    assert MAX_WORKERS == MOST_WORKERS
