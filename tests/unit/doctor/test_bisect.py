"""The procedure that narrows a failure down, on worlds made up and once on a real loader."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from click.testing import CliRunner

from stoker._tools.doctor.bisection import bisect as bisecting
from stoker._tools.doctor.bisection.bisect import Bisection, bisect
from stoker._tools.doctor.bisection.procedure import (
    BisectionSetting,
    BisectionTrial,
    Conclusion,
    conclude,
    procedure,
)
from stoker._tools.doctor.facts.trial import BisectionBaseline, BisectionOutcome
from stoker._tools.doctor.forms import bisection as bisect_screen
from stoker._tools.doctor.forms import bisection as bisection_form
from stoker.cli.main import main

OWN = BisectionBaseline(
    4, "fork", ("fork", "spawn", "forkserver"), ("dataset.transform", "collate_fn", "persistent_workers")
)
OK = BisectionOutcome("ok", 3, 0.1)
BAD = BisectionOutcome("error", 0, 0.1, "Traceback (most recent call last):\n  ...\nRuntimeError: no")


def played(
    works: Callable[[BisectionSetting], bool], own: BisectionBaseline = OWN, threads: bool = False
) -> tuple[list[BisectionTrial], Conclusion]:
    """The whole procedure in a world where ``works`` says what works."""
    steps = procedure(own, threads=threads)
    trials = []
    setting = next(steps)
    while True:
        outcome = OK if works(setting) else BAD
        trials.append(BisectionTrial(setting, outcome))
        try:
            setting = steps.send(outcome)
        except StopIteration:
            return trials, conclude(own, trials)


def test_a_transform_that_fails_in_workers_is_named():
    trials, found = played(lambda each: each.workers == 0 or "dataset.transform" in each.without)
    assert found.suspects == ("dataset.transform",)
    assert not found.works
    assert found.text == (
        "fails from 1 worker on under fork, works with none; works when dataset.transform is left out: "
        "the suspect is dataset.transform; stoker's loader fails on it, too."
    )
    assert [each.setting.workers for each in trials[:2]] == [0, 1]
    assert trials[-1].setting == BisectionSetting(1, engine="stoker")
    assert found.failure == trials[1]


def test_a_failure_without_workers_is_not_about_workers():
    trials, found = played(lambda each: "collate_fn" in each.without)
    assert [each.setting for each in trials] == [
        BisectionSetting(0),
        BisectionSetting(0, without=("dataset.transform",)),
        BisectionSetting(0, without=("collate_fn",)),
    ]
    assert found.text.startswith("fails without workers, too: they are not the cause")
    assert found.suspects == ("collate_fn",)


def test_what_a_fork_copies_and_what_spawning_sends():
    _, found = played(lambda each: each.workers == 0 or each.method in ("spawn", "forkserver"), threads=True)
    assert "works under spawn and forkserver: the suspect is what a fork copies" in found.text
    assert found.suspects == ()
    spawning = replace(OWN, method="spawn")
    _, found = played(
        lambda each: each.workers == 0 or each.method == "fork" or each.engine is not None, spawning
    )
    assert "under spawn, works with none; works under fork: the suspect is what has to be sent" in found.text
    assert found.text.endswith("stoker's loader works.")
    _, found = played(lambda each: each.workers == 0 or each.one_thread, threads=True)
    assert "works with one thread per native library" in found.text


def test_only_many_workers_fail_or_only_all_changes_together_help():
    trials, found = played(lambda each: each.workers < 4)
    assert found.text.startswith("fails from 4 workers on under fork, works with 0, 1 and 2; no change helps")
    assert BisectionSetting(4, without=OWN.parts) in [each.setting for each in trials]
    _, found = played(lambda each: each.workers == 0 or len(each.without) == 3)
    assert (
        "works only when all of dataset.transform, collate_fn, persistent_workers are left out" in found.text
    )


def test_a_loader_that_works_is_tried_under_the_other_start_methods():
    trials, found = played(lambda each: True)
    assert found.works
    assert found.failure is None
    assert found.text.startswith(
        "works with 0, 1, 2 and 4 workers, over at most 3 batches each; if it fails later"
    )
    assert len(trials) == 7
    _, found = played(lambda each: each.method is None or "collate_fn" in each.without)
    assert found.works
    assert found.failure is not None
    assert (
        "fails under spawn and forkserver, works there when collate_fn is left out: the suspect is collate_fn"
        in found.text
    )


def test_what_was_tried_until_then_is_concluded_from():
    trials, _ = played(lambda each: each.workers == 0)
    for count in range(len(trials) + 1):
        assert conclude(OWN, trials[:count]).text.endswith(".")
    assert conclude(OWN, []).text == "Nothing was tried."
    assert conclude(OWN, trials[:2]).text == "fails from 1 worker on under fork, works with none."


WORKER = (
    "Traceback (most recent call last):\n  File x\nRuntimeError: Caught ValueError in DataLoader worker process 0.\n"
    "Original Traceback (most recent call last):\n  File y\nValueError: odd sample 3\n\n"
)


def bisection(*trials: BisectionTrial, **more: object) -> Bisection:
    return replace(Bisection("t.py:x", OWN, trials, conclude(OWN, trials)), **more)  # type: ignore[arg-type]


def test_a_table_of_trials_fits_the_screen():
    hang = BisectionOutcome("hang", text="no answer for 12 s", stack='  File "t.py", line 3, in __getitem__')
    trials = [
        BisectionTrial(BisectionSetting(0), OK),
        BisectionTrial(BisectionSetting(1), replace(hang, text="no answer " * 20)),
        BisectionTrial(BisectionSetting(1, without=("dataset.transform",)), replace(BAD, text=WORKER)),
        BisectionTrial(BisectionSetting(1, "spawn"), BisectionOutcome("killed", text="killed by SIGKILL")),
    ]
    found = bisection(*trials, code="STK201", advice="Do\nthis.")
    for width in (80, 100):
        lines = bisect_screen.render(found, width).splitlines()
        assert max(map(len, lines)) <= width
    table = [line for line in lines if re.match(r"(Trials)?\s+\d? +\w", line)]
    assert table[0].split() == ["Trials", "workers", "start", "changed", "outcome"]
    assert any(line.endswith("error: ValueError: odd sample 3") for line in lines)
    assert any(line.endswith("spawn  as it is                   killed by SIGKILL") for line in lines)
    assert '            File "t.py", line 3, in __getitem__' in lines
    assert "Known as  STK201  Shared memory is small" in lines
    assert "Fix       Do this." in lines
    assert lines[-1] == "Next      stoker explain STK201"
    read = json.loads(json.dumps(bisect_screen.as_json(found)))
    assert (read["format"], read["works"], read["code"]) == ("stoker-bisection", False, "STK201")
    assert [each["outcome"]["what"] for each in read["trials"]] == ["ok", "hang", "error", "killed"]


def test_what_a_thread_of_torchs_printed_explains_a_hang():
    printed = (
        "Traceback (most recent call last):\n"
        '  File "/lib/multiprocessing/queues.py", line 244, in _feed\n    obj = _ForkingPickler.dumps(obj)\n'
        "TypeError: cannot pickle 'generator' object\n"
    )
    hang = BisectionTrial(
        BisectionSetting(1), BisectionOutcome("hang", text="no answer for 12 s", printed=printed)
    )
    assert bisecting._explained(hang)[0] == "STK406"
    assert (
        bisecting._explained(BisectionTrial(BisectionSetting(1), BisectionOutcome("hang", text="no answer")))[
            0
        ]
        == "STK804"
    )
    assert (
        bisecting._explained(
            BisectionTrial(BisectionSetting(0), BisectionOutcome("killed", text="by SIGSEGV"))
        )[0]
        == "STK412"
    )
    assert (
        bisecting._explained(BisectionTrial(BisectionSetting(1), replace(BAD, text="OddError: what?")))[0]
        is None
    )
    assert bisecting._explained(None) == (None, "")
    text = bisect_screen.render(bisection(BisectionTrial(BisectionSetting(0), OK), hang))
    assert "printed: TypeError: cannot pickle 'generator' object" in text


def test_ctrl_c_gives_the_table_so_far(monkeypatch):
    class Bench:
        faithful = False

        def __init__(self, *arguments: object) -> None:
            self.closed = False

        def look(self) -> BisectionBaseline:
            return OWN

        def outcome(self, setting: BisectionSetting, before: list[BisectionTrial]) -> BisectionOutcome:
            if len(before) == 2:
                raise KeyboardInterrupt
            return OK

        def close(self) -> None:
            self.closed = True

    monkeypatch.setattr(bisecting, "_TrialRunner", Bench)
    told: list[tuple[str, int, int]] = []
    found = bisect("t.py:x", progress=lambda *each: told.append(each))
    assert found.interrupted
    assert len(found.trials) == 2
    assert [each[0] for each in told] == ["0 workers", "1 workers", "2 workers"]
    result = CliRunner().invoke(main, ["doctor", "t.py:x", "--bisect"])
    assert result.exit_code == 130
    assert "Stopped   before all trials were made" in result.stdout
    monkeypatch.setattr(Bench, "outcome", lambda self, setting, before: None)
    late = CliRunner().invoke(main, ["doctor", "t.py:x", "--bisect", "--time-limit", "7", "--json"])
    assert json.loads(late.stdout)["cut_short"] == "the time limit of 7 s came first"


SCRIPT = """
import multiprocessing

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

multiprocessing.get_all_start_methods = lambda: ["fork"]  # the others take seconds each

def fussy(value):
    if get_worker_info() is not None:
        raise ValueError("not in a worker")
    return value

class Numbers(Dataset):
    transform = None

    def __init__(self):
        self.transform = fussy

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return self.transform(torch.full((2,), index))

train = DataLoader(Numbers(), batch_size=4, num_workers=2, shuffle=True, multiprocessing_context="fork")
"""


@pytest.mark.slow
def test_a_real_loader_is_narrowed_down_to_its_transform(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "numbers_script.py").write_text(SCRIPT)
    result = CliRunner().invoke(main, ["doctor", "numbers_script.py:train", "--bisect", "--json"])
    assert result.exit_code == 1, result.output
    read = json.loads(result.stdout)
    assert read["suspects"] == ["dataset.transform"]
    assert read["own"]["parts"] == ["dataset.transform"]
    assert read["conclusion"].startswith("fails from 1 worker on under fork")
    outcomes = {(each["workers"], each["change"]): each["outcome"]["what"] for each in read["trials"]}
    assert outcomes[0, ""] == "ok"
    assert outcomes[1, ""] == "error"
    assert outcomes[1, "without dataset.transform"] == "ok"
    assert outcomes[1, "stoker's loader"] == "error"
    assert any("ValueError: not in a worker" in each["outcome"]["text"] for each in read["trials"])


def test_a_fix_with_a_code_block_keeps_its_lines():
    text = "Put it\nunder a guard:\n\n```python\nif __name__ == '__main__':\n    main()\n```\n\nThen run it."
    assert bisection_form.paragraphs(text) == [
        "Put it under a guard:",
        "    if __name__ == '__main__':",
        "        main()",
        "Then run it.",
    ]
