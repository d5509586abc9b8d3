"""What people see is recognised, however it is wrapped; what has nothing to do with loaders is not."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker._tools.doctor.catalogue import catalogue
from stoker._tools.doctor.explain import explain
from stoker._tools.doctor.facts.host import machine

CORPUS = Path(__file__).parent / "corpus"


def texts(path):
    """(note, text) of every entry of a file."""
    found = []
    with open(path, newline="") as file:
        for part in ("\n" + file.read()).split("\n=== ")[1:]:
            note, _, text = part.partition("\n")
            found.append((note, text))
    return found


COLLECTED = [
    (*note.partition(" ")[::2], text)
    for path in sorted((CORPUS / "collected").glob("*.txt"))
    for note, text in texts(path)
]
"""(code or "none", where it was found, text)."""
KNOWN = [
    pytest.param(path.stem, text, id=f"{path.stem}: {note}")
    for path in sorted(CORPUS.glob("STK*.txt"))
    for note, text in texts(path)
] + [pytest.param(code, text, id=f"{code}: {note}") for code, note, text in COLLECTED if code != "none"]
UNRELATED = [pytest.param(text, id=note) for note, text in texts(CORPUS / "unrelated.txt")] + [
    pytest.param(text, id=note) for code, note, text in COLLECTED if code == "none"
]


def prefixed(prefix):
    return lambda text: "\n".join(prefix + line for line in text.splitlines())


def as_json(text):
    return "\n".join(
        json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-01-01T00:00:00.1Z"})
        for line in text.splitlines()
    )


def below_lightning(text):
    return (
        f"Epoch 0:   0%|          | 0/100 [00:00<?, ?it/s]\r{text}\n"
        "E0101 10:00:00.0 140 torch/distributed/elastic/multiprocessing/api.py:826] failed (exitcode: 1) (pid: 171)"
    )


WRAPPERS = {
    "torchrun, coloured": prefixed("\x1b[31m\x1b[1m[rank0]: "),
    "a logger below torchrun": prefixed("[default3]:2026-01-01 10:00:00,123 ERROR "),
    "Kubernetes": prefixed("2026-01-01T10:00:00.123456789Z stderr F "),
    "Ray, coloured": prefixed("\x1b[36m(RayTrainWorker pid=1942, ip=10.0.0.7)\x1b[0m "),
    "compose on Windows": lambda text: prefixed("trainer-1  | ")(text).replace("\n", "\r\n"),
    "JSON of docker": as_json,
    "Lightning": below_lightning,
}


@pytest.fixture(scope="module", autouse=True)
def no_machine():
    """What this machine is like has no part in what a text is about."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "gather", machine.MachineFacts)
        yield


def test_the_corpus_is_large_enough():
    assert len(KNOWN) >= 890
    assert len(UNRELATED) >= 440
    assert len(COLLECTED) >= 1050
    assert all(re.match(r"[\w.-]+/[\w.-]+#\d+ \S", where) for _, where, _ in COLLECTED)


def test_what_was_put_aside_was_chosen_by_its_name():
    """So that nobody moves a text from one part to the other."""
    for name, aside in (("aside", True), ("read", False)):
        for note, _ in texts(CORPUS / "collected" / f"{name}.txt"):
            digest = hashlib.sha256(note.split()[1].encode()).digest()
            assert (digest[0] % 3 == 0) == aside, note
    for name, aside in (
        ("second_aside", True),
        ("sixth", False),
        ("seventh", False),
        ("third_aside", True),
        ("ninth", False),
    ):
        for note, text in texts(CORPUS / "collected" / f"{name}.txt"):
            digest = hashlib.sha256(text.rstrip("\n").encode()).digest()
            assert (digest[0] % 3 == 0) == aside, note


@pytest.mark.parametrize(("note", "text"), texts(CORPUS / "missed.txt"))
def test_what_is_still_missed(note, text):
    """Nothing in these texts tells what they are about. One that is told right belongs to the others."""
    assert (explain(text).code or "none") != note.split()[0]


def test_a_quoted_line_of_source_is_weaker_than_a_message():
    """A notebook shows the lines around a call, and some of them hold messages."""
    quoted = "    103     'daemonic processes are not allowed to have children'\n--> 105    self._popen = self._Popen(self)\n"
    assert explain(quoted + "RuntimeError: received 0 items of ancdata").code == "STK202"
    assert len({each.values[0] for each in KNOWN}) >= 45


@pytest.mark.parametrize(("code", "text"), KNOWN)
def test_known(code, text):
    found = explain(text)
    assert found.code == code, str(found)
    assert found.finding is not None
    assert found.finding.evidence
    assert found.finding.advice
    assert len(str(found).splitlines()) <= 24


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_known_in_every_wrapping(wrapper):
    """Every text in two or three of them: all in all of them would take long and tell little more."""
    wrong = [
        (each.values[0], found, each.id)
        for each in KNOWN[list(WRAPPERS).index(wrapper) % 3 :: 3]
        if (found := explain(WRAPPERS[wrapper](each.values[1])).code) != each.values[0]
    ]
    assert wrong == []


@pytest.mark.parametrize("text", UNRELATED)
def test_unrelated(text):
    found = explain(text)
    assert found.finding is None, str(found)
    assert found.procedure


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_unrelated_in_every_wrapping(wrapper):
    wrong = [
        (each.id, found)
        for each in UNRELATED[list(WRAPPERS).index(wrapper) % 3 :: 3]
        if (found := explain(WRAPPERS[wrapper](each.values[0])).code) is not None
    ]
    assert wrong == []


NOISE = """\
Epoch 0:   0%|          | 0/1000 [00:00<?, ?it/s]
Validation DataLoader 0: 100%|##########| 12/12 [00:01<00:00, 11.2it/s]
INFO: train_loader = DataLoader(train, batch_size=32, num_workers=8, collate_fn=pad_collate, pin_memory=True)
/venv/torch/utils/data/dataloader.py:557: UserWarning: This DataLoader will create 16 worker processes in total.
The 'train_dataloader' does not have many workers which may be a bottleneck. Consider increasing `num_workers`.
popen_fork.py:66: DeprecationWarning: This process (pid=47) is multi-threaded, use of fork() may lead to deadlocks in the child.
  self.pid = os.fork()
"""
CLEANUP = """\
Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f62eb6ed630>
Traceback (most recent call last):
  File "/venv/lib/python3.10/site-packages/torch/utils/data/dataloader.py", line 1466, in __del__
    self._shutdown_workers()
  File "/usr/lib/python3.10/multiprocessing/process.py", line 160, in is_alive
    assert self._parent_pid == os.getpid(), 'can only test a child process'
AssertionError: can only test a child process
"""


def test_a_log_full_of_loaders_does_not_make_an_error_theirs():
    """The name of a loader in bars, options and warnings, and what its clean-up prints after an error, are no cause."""
    failed = [(each.id, text) for each in UNRELATED if "Error" in (text := str(each.values[0]))]
    assert len(failed) > 80
    before = [(name, found) for name, text in failed if (found := explain(NOISE + text).code)]
    after = [
        (name, found)
        for name, text in failed
        if "Traceback" in text and (found := explain(text + CLEANUP).code)
    ]
    assert (before, after) == ([], [])
    assert explain(CLEANUP).code == "STK308"


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=400))
def test_random_text_is_never_recognised(text):
    assert explain(text).finding is None


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_pieces_of_what_people_see_never_raise(data):
    text = data.draw(st.sampled_from(KNOWN)).values[1]
    start = data.draw(st.integers(0, len(text)))
    noise = data.draw(st.text(max_size=50))
    str(explain(noise + text[start : start + data.draw(st.integers(0, 600))] + noise))


def test_every_code_with_marks_has_a_text():
    """So that nobody breaks marks unnoticed. Stoker's own errors are provoked in ``test_explain_own``; the code of a death that is
    raised elsewhere (STK811) always stands beside that of the death."""
    codes = {each.values[0] for each in KNOWN}
    marked = {check.code for check in catalogue() if check.marks and not check.code.startswith("STK9")}
    assert marked - codes - {"STK811", "STK509", "STK601"} == set()
