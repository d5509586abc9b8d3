"""How advice is scored: findings by code, and verdicts by the bottleneck that a script was given."""

from __future__ import annotations

import ast

import pytest

from benchmarks.advice.score import score, table
from benchmarks.advice.training import BOTTLENECKS, FORMS, Bottleneck, Form, text
from benchmarks.advice.verdicts import right


def found(*codes: str, stall: float = 0.5, foreign: float = 0.0) -> dict[str, object]:
    return {"codes": list(codes), "stall": stall, "foreign_cpus": foreign}


def codes(*some: str) -> frozenset[str]:
    return frozenset(some)


def test_precision_and_recall_count_codes_and_leave_out_what_is_true_as_well() -> None:
    total = score(
        [
            (codes("STK401"), codes("STK705"), codes("STK401", "STK705")),
            (codes("STK501"), codes(), codes()),
            (codes(), codes(), codes("STK603")),
        ]
    )
    assert (total.right.total(), total.wrong.total(), total.missed.total()) == (1, 1, 1)
    assert (total.precision, total.recall) == (0.5, 0.5)
    assert [line.split()[0] for line in table(total).splitlines()] == [
        "code",
        "STK401",
        "STK501",
        "STK603",
        "all",
    ]


def test_nothing_found_and_nothing_there_is_perfect() -> None:
    assert (score([]).precision, score([]).recall) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("name", "told", "expected"),
    [
        ("lock", found("slow-reads"), True),
        ("lock", found("more-workers", "slow-reads"), False),
        ("decode", found("cpu-neighbours", foreign=1.8), None),
        ("decode", found("cpu-neighbours", foreign=0.1), False),
        ("none", found("slow-start", stall=0.02), True),
        ("none", found("slow-start", stall=0.3), False),
        ("none", found(), True),
        ("sampler", found(), False),
    ],
)
def test_the_first_finding_counts(name: str, told: dict[str, object], expected: bool | None) -> None:
    assert right(BOTTLENECKS[name], told, most=0.5) is expected


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("bottleneck", BOTTLENECKS.values(), ids=BOTTLENECKS)
def test_every_script_is_python(form: Form, bottleneck: Bottleneck) -> None:
    ast.parse(text(form, bottleneck))
