"""Each answer of verify has a code that explain knows, and each fault says what to do."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from stoker._tools import verify
from stoker._tools.verify import screen
from stoker._tools.verify.answer import VerifyAnswer
from stoker._tools.verify.codes import CODES
from stoker._tools.verify.verification import Verification
from stoker.cli.main import main

WRONG = {
    "different", "different-seed", "different-samples", "different-length", "another-dataset", "wrong-samples",
    "double-sharding", "not-divided", "incomplete", "damaged", "gap", "repeated", "same-order", "stale-set-epoch",
}  # fmt: skip


def explained(*words: str) -> str:
    done = CliRunner().invoke(main, ["explain", *words], terminal_width=200)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_code_without_a_text_is_refused() -> None:
    with pytest.raises(ValueError, match="no such answer: 'odd'"):
        VerifyAnswer("runs", "fault", "odd", "text")


def test_no_code_is_left_over() -> None:
    folder = Path(verify.__path__[0])
    used = {
        node.value
        for path in folder.glob("*.py")
        if path.name != "codes.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert CODES.keys() - used == set()


def test_explain_knows_every_code() -> None:
    pages = json.loads(explained("--json", *CODES))["codes"]
    assert {page["code"] for page in pages if page["kind"] == "receipt"} == CODES.keys()
    listed = json.loads(explained("--list", "--json"))["codes"]
    assert CODES.keys() <= {each["code"] for each in listed}


def test_a_page_says_what_it_means_and_what_to_do() -> None:
    page = explained("double-sharding")
    assert "An answer of stoker verify" in page
    assert "Divide once" in page
    assert "docs/receipts.md" in page


def test_a_word_with_two_meanings_has_two_pages() -> None:
    page = explained("unknown")
    assert "A cause of waits" in page
    assert "An answer of stoker verify" in page


def test_what_is_nearly_a_code_is_named() -> None:
    done = CliRunner().invoke(main, ["explain", "double-shard"])
    assert done.exit_code == 2
    assert "double-sharding: the data was divided" in done.output


def test_faults_say_what_to_do() -> None:
    assert {code for code in WRONG if not CODES[code].advice} == set()
    answers = [VerifyAnswer("runs", "fault", "different-seed", "other seeds", "loader", (n,)) for n in (1, 2)]
    *_, verdict, advice = [line.text for line in screen.lines(Verification([], answers), 200)]
    assert verdict.startswith("Verdict")
    assert advice.startswith("Next      Call torch.manual_seed()")
    assert advice.endswith("(different-seed)")
    well = [VerifyAnswer("runs", "ok", "same", "the same", "loader", (1,))]
    assert screen.lines(Verification([], well), 100)[-1].text.startswith("Verdict")
