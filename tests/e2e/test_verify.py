"""``stoker verify`` over receipts of real loaders: equal and different runs, files, and the command."""

from __future__ import annotations

import json
import os
import stat
from typing import Any

import pytest
from click.testing import CliRunner

from stoker._receipt import receipt_file
from stoker.cli.main import main
from tests.e2e.receipts import Numbers, Stream, codes, found, loader_of, run, text_of


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"num_workers": 2},
        {"num_workers": 2, "executor": "thread"},
        {"num_workers": 2, "persistent_workers": True, "prefetch_epochs": True},
        {"num_workers": 2, "split_batches": True},
        {"on_bad_sample": "skip"},
        {"timeout": 60},
    ],
    ids=str,
)
def test_runs_with_the_same_seed_are_the_same_whoever_makes_the_batches(tmp_path, other):
    a, b = tmp_path / "a", tmp_path / "b"
    run(a, loader_of(), epochs=2)
    run(b, loader_of(**other), epochs=2)
    answers = found(a, b)
    assert codes(answers, "fault") == []
    assert "the two runs are the same: 13 batches, and the seed" in text_of(answers, "same")
    assert [each.epochs for each in answers.answers if each.code == "same"] == [(0, 1)]


def test_another_seed_differs_from_the_first_batch_on(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    run(a, loader_of(seed=0))
    run(b, loader_of(seed=1))
    text = text_of(found(a, b), "different")
    assert text == ("the two runs are different from batch 0 on: the same samples in another order")


def test_the_first_batch_that_differs_is_named(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    order: Any = list(range(100))
    run(a, loader_of(shuffle=False, sampler=order))
    order[61], order[62] = order[62], order[61]
    run(b, loader_of(shuffle=False, sampler=order))
    assert text_of(found(a, b), "different") == "the two runs are different from batch 7 on"


def test_the_same_order_with_another_seed_is_told(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    run(a, loader_of(shuffle=False, seed=0))
    run(b, loader_of(shuffle=False, seed=1))
    assert "other random numbers" in text_of(found(a, b), "different-seed")


def test_batches_out_of_order_are_the_same_batches(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    run(a, loader_of())
    run(b, loader_of(num_workers=2, in_order=False))
    answers = found(a, b)
    assert codes(answers, "fault") == []
    assert {"same", "other-order"} & set(codes(answers))


def test_a_run_that_was_left_is_the_same_up_to_there(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    run(a, loader_of())
    run(b, loader_of(), leave_after=5)
    answers = found(a, b)
    assert "the same up to batch 4" in text_of(answers, "different-length")
    assert codes(answers, "fault") == []


def test_a_run_without_batches_is_named(tmp_path):
    run(tmp_path / "a", loader_of())
    (tmp_path / "b").write_bytes((tmp_path / "a").read_bytes()[:-1])
    for paths, empty, other in ((("a", "b"), 2, 1), (("b", "a"), 1, 2)):
        text = text_of(found(*(tmp_path / each for each in paths)), "different-length")
        assert text == f"run {empty} has no batches, and run {other} has 13"


def test_another_dataset_is_named(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    run(a, loader_of())
    run(b, loader_of(Numbers(99)))
    assert text_of(found(a, b), "another-dataset") == (
        "the receipts are of different datasets: TensorDataset of 100 samples, and Numbers of 99 samples in run 2"
    )


def test_records_have_their_receipts_beside_them(tmp_path):
    for place in range(2):
        run(tmp_path / "saved", loader_of(record=tmp_path / str(place)))
    [journal] = (tmp_path / "0").glob("*.jsonl")
    receipts = journal.with_suffix(".receipt")
    assert stat.S_IMODE(os.stat(receipts).st_mode) == 0o600
    assert codes(found(tmp_path / "0")) == ["complete"]
    assert "same" in codes(found(journal, tmp_path / "1"))
    [receipt] = receipt_file.read(receipts).receipts
    [told] = json.loads(journal.read_text().splitlines()[-1])["loaders"][0]["receipts"]
    assert told["digest"] == f"{receipt.digest:016x}"
    assert told["samples"] == 100
    receipts.unlink()
    with pytest.raises(
        ValueError, match=r"is a run record, and .*receipt, which has its receipts, is not beside it"
    ):
        found(journal)


def test_a_saved_receipt_that_is_saved_again_counts_once(tmp_path):
    loader = loader_of()
    for _ in loader:
        loader.receipt().save(tmp_path / "a")
    loader.receipt().save(tmp_path / "a")
    [receipt] = receipt_file.read(tmp_path / "a").receipts
    mine = loader.receipt()
    assert receipt.entries.tolist() == mine.entries.tolist()
    assert receipt.as_dict() == mine.as_dict()
    assert stat.S_IMODE(os.stat(tmp_path / "a").st_mode) == 0o600


def test_a_truncated_receipt_is_named_and_read_as_far_as_it_goes(tmp_path):
    run(tmp_path / "a", loader_of(), epochs=2)
    data = (tmp_path / "a").read_bytes()
    (tmp_path / "cut").write_bytes(data[:-10])
    answers = found(tmp_path / "cut")
    assert "cut is truncated: its last block should have" in text_of(answers, "damaged")
    assert "complete" in codes(answers)
    (tmp_path / "short").write_bytes(data[:30])
    with pytest.raises(ValueError, match=r"truncated.*nothing of it can be read"):
        found(tmp_path / "short")
    (tmp_path / "flipped").write_bytes(data[:-10] + b"?" + data[-9:])
    assert "is not what was written" in text_of(found(tmp_path / "flipped"), "damaged")


def test_a_newer_receipt_is_named(tmp_path):
    run(tmp_path / "a", loader_of())
    data = bytearray((tmp_path / "a").read_bytes())
    data[4] = 9
    (tmp_path / "a").write_bytes(data)
    answer = CliRunner().invoke(main, ["verify", str(tmp_path / "a")])
    assert answer.exit_code == 2
    assert "has receipts of version 9, and this stoker reads up to 1: upgrade stoker" in answer.output


@pytest.mark.parametrize("content", [b"", b"STKR", b"{}", b"\x80\x04K\x01."])
def test_other_files_are_refused_in_a_line(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    answer = CliRunner().invoke(main, ["verify", str(tmp_path / "a")])
    assert answer.exit_code == 2
    assert answer.output.startswith("stoker verify: ")
    assert len(answer.output.splitlines()) == 1


def test_the_command_answers_with_its_exit_code_and_fits_a_terminal(tmp_path):
    run(tmp_path / "a", loader_of(), epochs=2)
    run(tmp_path / "b", loader_of(seed=1), epochs=2)
    good = CliRunner().invoke(main, ["verify", str(tmp_path / "a")])
    assert good.exit_code == 0
    assert "epochs 0, 1: every one of the 100 samples exactly once" in good.output
    assert "Nothing is wrong in 2 receipts of 1 loader." in good.output
    wrong = CliRunner().invoke(main, ["verify", str(tmp_path / "a"), str(tmp_path / "b")])
    assert wrong.exit_code == 1
    assert max(map(len, wrong.output.splitlines())) <= 100
    assert len(wrong.output.splitlines()) <= 24
    told = json.loads(
        CliRunner().invoke(main, ["verify", "--json", str(tmp_path / "a"), str(tmp_path / "b")]).output
    )
    assert told["format"] == "stoker-verify"
    assert told["faults"] == sum(each["level"] == "fault" for each in told["answers"]) == 1
    assert CliRunner().invoke(main, ["verify", str(tmp_path / "none")]).exit_code == 2


def test_a_stream_is_counted_and_that_is_said(tmp_path):
    run(tmp_path / "a", loader_of(Stream(), shuffle=None))
    run(tmp_path / "b", loader_of(Stream(), shuffle=None))
    assert "an iterable dataset has no indices: 12 batches were counted" in text_of(
        found(tmp_path / "a"), "stream"
    )
    text = [each.text for each in found(tmp_path / "a", tmp_path / "b").answers if each.question == "runs"]
    assert text == [
        "an iterable dataset has no indices: 12 batches in both runs, and the first 8 of them have the same content"
    ]


def test_before_the_first_batch_there_is_no_receipt():
    assert loader_of().receipt() is None
