"""What an explanation says: the line, the clues, what else was seen, this machine; and how texts are made plain."""

from __future__ import annotations

import dataclasses
import io
import json
import re

import pytest

import stoker
from stoker._record.finding import Finding
from stoker._tools.doctor.catalogue import catalogue, check_of
from stoker._tools.doctor.explain import PROCEDURE, Explanation, OtherMatch, explain_log, first_advice
from stoker._tools.doctor.facts.host import machine
from stoker._tools.doctor.reading import logs
from stoker.errors import LoaderClosed, WorkerDied, coded

BUS = (
    "RuntimeError: DataLoader worker (pid 4021) is killed by signal: Bus error. It is possible that dataloader's workers are out "
    "of shared memory. Please try to raise your shared memory limit."
)
IN_WORKER = """Traceback (most recent call last):
  File "/home/li/train.py", line 9, in <module>
    for batch in loader:
  File "/venv/lib/python3.10/site-packages/torch/utils/data/dataloader.py", line 631, in __next__
    data = self._next_data()
KeyError: Caught KeyError in DataLoader worker process 3.
Original Traceback (most recent call last):
  File "/venv/lib/python3.10/site-packages/torch/utils/data/_utils/worker.py", line 308, in _worker_loop
    data = fetcher.fetch(index)
  File "/home/li/data.py", line 14, in __getitem__
    return self.table[index]
KeyError: 'img_0412'
"""


@pytest.fixture(autouse=True)
def small_shm(monkeypatch):
    monkeypatch.setattr(
        machine, "gather", lambda: machine.MachineFacts(shm_bytes=64 << 20, shm_free_bytes=60 << 20)
    )


def test_the_answer_has_line_clues_cause_here_fix_and_the_next_command():
    found = stoker.explain(f"Epoch 1\nEpoch 2\n{BUS}\n")
    assert found.finding is not None
    assert (found.code, found.line_number, found.finding.severity) == ("STK201", 3, "high")
    assert found.finding.evidence == BUS[:300]
    assert found.clues["pid"] == "4021"
    assert found.clues["signal"] == "Bus error"
    assert "64" in found.here
    assert found.prevented
    assert found.page == "docs/checks/STK201.md"
    assert found.next == "stoker doctor TARGET --select STK201"
    screen = str(found)
    assert screen.startswith("STK201 ")
    assert "on this machine" in screen
    assert "--shm-size" in screen
    assert json.loads(json.dumps(found.as_dict()))["code"] == "STK201"
    assert "STK201" in found._repr_markdown_()
    assert "<table>" in found._repr_html_()


def test_a_text_of_another_system_says_nothing_of_this_machine():
    text = f'  File "C:\\work\\train.py", line 3, in <module>\n{BUS}'
    found = stoker.explain(text)
    assert found.code == "STK201"
    assert found.clues["system"] == "Windows"
    assert found.here == ""


def test_the_users_own_exception_is_told_with_its_place():
    found = stoker.explain(IN_WORKER)
    assert found.code == "STK404"
    assert found.clues["worker"] == "3"
    assert found.clues["exception"] == "KeyError"
    assert found.clues["frame"] == "/home/li/data.py:14 in __getitem__"
    assert found.finding is not None
    assert found.finding.where == "/home/li/data.py:14 in __getitem__"


def test_a_frame_of_a_notebook():
    text = IN_WORKER.replace("/home/li/data.py", "/venv/lib/python3.10/site-packages/data.py").replace(
        '  File "/home/li/train.py", line 9, in <module>', "Cell In[7], line 3"
    )
    assert stoker.explain(text).clues["frame"] == "Cell In[7], line 3"


def test_what_became_of_it_is_told_beside_the_cause():
    text = f"{BUS}\n\nRuntimeError: DataLoader worker (pid(s) 4021) exited unexpectedly\n"
    found = stoker.explain(text)
    assert found.code == "STK201"
    assert [(each.code, each.line_number, each.reason) for each in found.also] == [
        ("STK802", 3, "a consequence, not the cause")
    ]
    assert "STK802" in str(found)


SAVING = """Traceback (most recent call last):
  File "/home/li/train.py", line 88, in save
    torch.save(model.state_dict(), path)
  File "/venv/lib/python3.10/site-packages/torch/{where}.py", line 440, in {where}
    _save(obj, opened_zipfile)
  File "/venv/lib/python3.10/site-packages/torch/utils/data/_utils/signal_handling.py", line 73, in handler
    _error_if_any_worker_fails()
RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.
"""


def test_a_death_that_is_raised_elsewhere_is_told_beside_it():
    found = stoker.explain(SAVING.format(where="serialization"))
    assert found.code == "STK603"
    assert [each.code for each in found.also] == ["STK811"]
    assert stoker.explain(SAVING.format(where="selectors")).also == ()


def test_what_cannot_be_pickled_is_a_clue():
    assert (
        stoker.explain("TypeError: cannot pickle '_io.BufferedReader' object").clues["object"]
        == "_io.BufferedReader"
    )
    found = stoker.explain("AttributeError: Can't pickle local object 'main.<locals>.<lambda>'")
    assert found.clues["object"] == "main.<locals>.<lambda>"


def test_a_warning_names_no_failure_of_something_else():
    warning = "huggingface/tokenizers: The current process just got forked, after parallelism has already been used."
    assert stoker.explain(warning).code == "STK309"
    found = stoker.explain(f"{warning}\nTraceback (most recent call last):\nValueError: something else\n")
    assert found.finding is None
    assert [each.code for each in found.also] == ["STK309"]


def test_the_unknown_shows_how_to_narrow_it_down():
    found = stoker.explain("ZeroDivisionError: division by zero")
    assert found.finding is None
    assert found.code is None
    assert found.procedure == PROCEDURE
    assert "stoker doctor --bisect TARGET" in str(found)
    assert "num_workers=0" in str(found)
    assert len(str(found).splitlines()) <= 24
    assert found.as_dict()["recognised"] is False
    assert "num_workers=0" in found._repr_markdown_()
    assert "num_workers=0" in found._repr_html_()


def test_what_explain_takes():
    with pytest.raises(TypeError, match="an exception or a text"):
        stoker.explain(3)  # type: ignore[arg-type]
    assert stoker.explain("").finding is None


class TestExceptions:
    def test_a_cause(self):
        try:
            try:
                raise RuntimeError(BUS)
            except RuntimeError as error:
                raise ValueError("training failed") from error
        except ValueError as error:
            found = stoker.explain(error)
        assert found.code == "STK201"
        assert found.clues["frame"].startswith(__file__)

    def test_a_context(self):
        error = ValueError("training failed")
        error.__context__ = RuntimeError(BUS)
        assert stoker.explain(error).code == "STK201"

    def test_a_group(self):
        group = ExceptionGroup("ranks", [ValueError("other"), ExceptionGroup("inner", [RuntimeError(BUS)])])
        assert stoker.explain(group).code == "STK201"

    def test_a_note(self):
        error = RuntimeError("rank 3 failed")
        error.add_note(BUS)
        assert stoker.explain(error).code == "STK201"

    def test_a_code_that_it_carries(self):
        assert stoker.explain(coded(WorkerDied("gone"), "STK603")).code == "STK603"
        error = ValueError("training failed")
        error.__cause__ = LoaderClosed("closed")
        assert stoker.explain(error).code == "STK902"

    def test_others_with_an_attribute_of_that_name(self):
        assert stoker.explain(SystemExit(3)).code is None

    def test_one_whose_text_cannot_be_had(self):
        class Odd(Exception):
            def __str__(self):
                raise ValueError

        assert stoker.explain(Odd()).code is None


def test_a_code_of_another_version():
    found = stoker.explain('STK777: the command "stoker explain STK777" has causes and fixes')
    assert found.code == "STK777"
    assert "does not know STK777" in str(found)


class TestLogs:
    def test_prefixes_go_and_numbers_stay(self):
        log = logs.of_text("first\n[rank0]: 2026-01-01 10:00:00,1 ERROR \x1b[31mboom\x1b[0m\n")
        assert log.text == "first\nboom\n"
        assert log.at(log.text.index("boom")) == (2, "boom")

    def test_one_line_of_json_is_many(self):
        text = json.dumps(
            {"level": "error", "message": "failed", "exc_info": 'Traceback\n  File "a.py"\nKeyError'}
        )
        assert logs.of_text(text).text == 'failed\nTraceback\n  File "a.py"\nKeyError\n'

    def test_line_ends_that_were_escaped(self):
        log = logs.of_text(
            r"ERROR: Traceback (most recent call last):\n  File \"a.py\", line 3\nKeyError: 'x'"
        )
        assert log.text.splitlines() == [
            "Traceback (most recent call last):",
            '  File "a.py", line 3',
            "KeyError: 'x'",
        ]

    def test_progress_bars(self):
        assert logs.of_text("10%|#\r20%|##\rKeyError\n").text == "10%|#\n20%|##\nKeyError\n"

    def test_a_terminal_broke_words(self):
        line = BUS[:80]
        assert stoker.explain(f"{line}\n{BUS[80:160]}\n{BUS[160:]}").code == "STK201"

    def test_a_traceback_that_stands_indented(self):
        """In code that somebody quotes, or in a launcher's summary; what comes after it stays where it is."""
        quoted = "    Traceback (most recent call last):\n      File \"a.py\", line 3\n\n    KeyError: 'x'\n  time: 3\n"
        log = logs.of_text(f"words\n{quoted}")
        assert (
            log.text
            == "words\nTraceback (most recent call last):\n  File \"a.py\", line 3\n\nKeyError: 'x'\n  time: 3\n"
        )
        assert log.at(log.text.index("KeyError")) == (5, "KeyError: 'x'")

    def test_utf_16_of_powershell(self):
        assert explain_log(logs.of_file(io.BytesIO(f"first\r\n{BUS}\r\n".encode("utf-16")))).code == "STK201"

    def test_bytes_that_are_no_text(self):
        assert explain_log(logs.of_file(io.BytesIO(bytes(range(256)) + BUS.encode()))).code == "STK201"

    def test_a_long_one_keeps_what_is_near_trouble(self):
        chatter = b"2026-01-01 10:00:00 INFO step loss 0.31\n" * 20_000
        noise = b"WARNING worker 3: Error, once more\n" * 30_000
        data = chatter + noise + BUS.encode() + b"\n" + noise + chatter
        log = logs.of_file(io.BytesIO(data))
        assert not log.whole
        assert len(log.text) < 600_000
        found = explain_log(log)
        assert (found.code, found.line_number, found.whole) == ("STK201", 50_001, False)


class TestFix:
    def test_prose_and_the_code_below_it(self):
        assert first_advice("Do this,\nand that:\n\n```python\na = 1\n\nb = 2\n```\n\nMore.") == (
            "Do this, and that:\n```python\na = 1\n\nb = 2\n```"
        )

    def test_prose_alone(self):
        assert first_advice("Do this.\n\nMore.\n\n```sh\nrm\n```") == "Do this."

    def test_code_alone(self):
        assert first_advice("```sh\nrm\n```\nMore.") == "```sh\nrm\n```"

    def test_code_stays_as_it_is_on_the_screen(self):
        found = stoker.explain("AttributeError: Can't pickle local object 'get_loader.<locals>.<lambda>'")
        assert found.finding is not None
        assert "```" not in str(found)
        code = found.finding.advice.partition("```")[2].splitlines()[1]
        assert f"    {code}" in str(found)
        assert "<pre>" in found._repr_html_()

    def test_every_check_says_what_to_do(self):
        for check in catalogue():
            assert first_advice(check.sections["Fix"]), check.code


def test_this_machine_as_a_cause():
    group = machine.MachineFacts(
        memory_bytes=2 << 30, available_bytes=1 << 30, cgroup_limit_bytes=2 << 30, cgroup_used_bytes=1 << 30
    )
    plain = machine.MachineFacts(memory_bytes=64 << 30, available_bytes=8 << 30)
    check = check_of("STK603")
    assert check is not None
    assert check.here is not None
    assert check.here(group) == "the cgroup may take 2 GiB and takes 1 GiB now"
    assert check.here(plain) == "there are 64 GiB of memory, of which 8 GiB can be taken now"
    for each in catalogue():
        assert each.here is None or each.here(machine.MachineFacts()) == ""


def test_a_long_answer_loses_what_is_missed_least_and_keeps_the_next_command():
    advice = "Set it. " * 60 + "\n```python\n" + "line\n" * 9 + "```"
    also = tuple(
        OtherMatch(f"STK80{number}", "Something else that was seen " * 4, number, "later")
        for number in range(3)
    )
    found = Explanation(
        Finding("STK201", "high", "evidence " * 20, advice),
        title="Title",
        also=also,
        page="a page",
        next="stoker doctor",
    )
    lines = str(found).splitlines()
    assert len(lines) <= 24
    assert lines[-1].split(maxsplit=1) == ["Next", "stoker doctor"]
    assert "STK801" not in str(found)
    short = dataclasses.replace(found, finding=Finding("STK201", "high", "evidence", "Set it."))
    assert "Also      STK800" in str(short)


def test_the_last_of_many_marks_counts():
    """Most say nothing: what must stand near them does not."""
    text = "OSError: Too many open files\n" * 5000 + '  File "resource_sharer.py", line 3, in detach\n'
    found = stoker.explain(text)
    assert found.code == "STK202"
    assert found.line_number > 4000


def test_no_mark_begins_with_an_endless_word():
    """It would be tried at each letter of a word, to the word's end: minutes for 100 kB without a space."""
    endless = re.compile(r"(?:\(\?\w+\)|\(\?:)*(?:\\[wS]|\[\^?[^\]]+\])[+*]")
    assert endless.match(r"\w+(?: \w+)? in DataLoader worker")
    marks = [mark.pattern for check in catalogue() for mark in check.marks]
    assert [pattern for pattern in marks if endless.match(pattern)] == []


def test_millions_of_blank_lines_are_no_text_to_search():
    log = logs.of_file(io.BytesIO(b"\n" * 300_000 + BUS.encode()))
    assert explain_log(log).line_number == 300_001
    assert log.whole
    assert len(log.text) < 1000


@pytest.mark.parametrize(
    ("code", "warning"),
    [
        (
            "STK804",
            "train.py:9: WorkerStalled: DataLoader 'a' has waited 31.0 s for batch 3 [stoker explain STK804]\n  worker 0 (pid 3)",
        ),
        (
            "STK303",
            "OpenCV's threads do not survive the fork that starts the workers (stoker explain STK303)",
        ),
        (
            "STK603",
            (
                "train: DataLoader worker (pid 3) is killed by signal: Killed; a new worker takes its place.\n"
                "  likely cause: out of memory: the kernel's OOM killer struck\n  stoker explain STK603 has causes and fixes"
            ),
        ),
    ],
)
def test_what_the_run_went_on_after_is_not_what_ended_it(code, warning):
    assert stoker.explain(warning).code == code
    found = stoker.explain(
        f"{warning}\nTraceback (most recent call last):\n  File 'a.py'\nKeyError: 'task'\n"
    )
    assert found.code is None
    assert [each.code for each in found.also] == [code]
    ended = stoker.explain(f"{warning}\n{BUS}\n")
    assert (ended.code, code in [each.code for each in ended.also]) == ("STK201", True)
    interrupted = f"{warning}\nTraceback (most recent call last):\n  File 'a.py'\nKeyboardInterrupt\n"
    assert stoker.explain(interrupted).code == code
