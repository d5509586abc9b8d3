"""Errors of stoker's carry their codes, once, wherever they have travelled; and are recognised with that note and without it."""

from __future__ import annotations

import copy
import errno
import inspect
import os
import pickle
import signal
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

import stoker
from stoker import errors
from stoker._pickling.spec_pickle import SpecPickle
from stoker._record import journal
from stoker._runtime.executors.process import start_method
from stoker._runtime.executors.process.crash_report import code_of
from stoker._runtime.protocol import failures
from stoker._tools.doctor.catalogue import check_of
from stoker._tools.report.profiler import reading

CODED: list[Any] = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if hasattr(kind, "code") and kind not in (errors.Coded, errors.StokerError)
]


def notes(error):
    return [note for note in getattr(error, "__notes__", ()) if "stoker explain" in note]


def test_every_class_has_a_code_with_a_page():
    without = {
        name
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, BaseException) and not hasattr(kind, "code")
    }
    assert without == {"WorkerTraceback"}
    each: Any
    for each in CODED:
        check = check_of(each.code)
        assert check is not None, each
    assert len({each.code for each in CODED}) == len(CODED)


@pytest.mark.parametrize("kind", [each for each in CODED if not issubclass(each, Warning)])
def test_the_note_is_made_once_and_the_text_stays(kind: Any) -> None:
    error: Any = kind(errno.EAGAIN, "the text") if kind is errors.StartRefused else kind("the text")
    assert str(error) == "the text"
    each: Any
    for each in (
        error,
        pickle.loads(pickle.dumps(error)),
        copy.copy(error),
        failures.unpack(failures.pack(error, 0)),
    ):
        assert type(each) is kind
        assert each.code == kind.code
        assert len(notes(each)) == 1
        assert kind.code in notes(each)[0]
        assert str(each) == "the text"


def test_an_error_may_have_a_closer_code():
    error = errors.coded(errors.coded(errors.WorkerDied("gone"), "STK802"), "STK603")
    again: Any = failures.unpack(failures.pack(pickle.loads(pickle.dumps(error)), 0))
    for each in (error, again):
        assert each.code == "STK603"
        assert notes(each) == ['STK603: the command "stoker explain STK603" has causes and fixes']
    assert errors.WorkerDied.code == "STK801"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOMEM, "STK208"),
        (errno.EMFILE, "STK202"),
        (errno.ENFILE, "STK202"),
        (errno.ENOENT, "STK205"),
        (errno.EAGAIN, "STK809"),
    ],
)
def test_a_refused_start_by_its_number(number, code):
    error = errors.StartRefused(number, "no")
    assert (error.code, error.errno) == (code, number)
    assert len(notes(error)) == 1


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ("is killed by signal: Killed (SIGKILL).\n  likely cause: out of memory: the kernel's OOM killer struck", "STK603"),
        ("is killed by signal: Killed (SIGKILL).\n  likely cause: somebody sent it SIGKILL", "STK801"),
        ("DataLoader worker (pid 3) is killed by signal: Segmentation fault (SIGSEGV).", "STK801"),
        ("DataLoader worker (pid(s) 3) exited unexpectedly with exit code 3", "STK802"),
        ("a worker process (fork) could not be started: Resource temporarily unavailable.", "STK809"),
    ],
)  # fmt: skip
def test_a_death_by_what_is_said_of_it(told, code):
    assert code_of(told) == code


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        return row() if callable(row) else row


class Stream(IterableDataset):
    def __iter__(self):
        yield 1
        raise ValueError("bad record")


def stops():
    raise StopIteration


def breaks():
    raise OSError("no such picture")


def dies():
    os.kill(os.getpid(), signal.SIGSEGV)


def leaves():
    os._exit(3)


def fails(worker):
    raise ValueError("no seed")


def drained(dataset, **arguments):
    for _ in stoker.DataLoader(dataset, batch_size=2, **arguments):
        pass


def iter_of_nothing():
    yield from ()


def impossible():
    raise errors.IllegalMove("planned twice: ticket 17")


def closed():
    loader = stoker.DataLoader(Rows([1, 2, 3, 4]), num_workers=1)
    iterator = iter(loader)
    next(iterator)
    loader.close()
    next(iterator)


def changed():
    rows = [1]
    cached = stoker.cache(Rows([lambda: rows[0]]), "1MiB", verify=1.0)
    cached[0]
    rows[0] = 2
    cached[0]


def locked():
    SpecPickle(Rows([iter_of_nothing()]))


OWN = {
    "shapes": ("STK401", lambda: drained(Rows([torch.zeros(1), torch.zeros(2)]))),
    "none": ("STK402", lambda: drained(Rows([torch.zeros(1), None]))),
    "types": ("STK403", lambda: drained(Rows([torch.zeros(1), "a"]))),
    "keys": ("STK403", lambda: drained(Rows([{"a": 1}, {"b": 1}]))),
    "stop": ("STK405", lambda: drained(Rows([1, stops]))),
    "generator": ("STK509", lambda: drained(Stream(), on_bad_sample="skip")),
    "none good": ("STK906", lambda: drained(Rows([breaks, breaks]), on_bad_sample="replace")),
    "read only": ("STK904", lambda: stoker.share(["a"] * 3).append("b")),
    "not shared": ("STK905", lambda: stoker.share([{"a": iter_of_nothing()}])),
    "record": ("STK907", lambda: journal.read(Path(__file__))),
    "trace": ("STK908", lambda: reading.files([Path("no such trace.json")])),
    "state": ("STK909", lambda: stoker.DataLoader(Rows([1])).load_state_dict({"epoch": 3})),
    "cached stream": ("STK911", lambda: stoker.cache(Stream())),
    "random samples": ("STK912", lambda: stoker.cache(Rows([lambda: torch.rand(1)]))),
    "another sample": ("STK913", changed),
    "move": ("STK901", impossible),
    "dataset": ("STK101", locked),
    "a crash": ("STK801", lambda: drained(Rows([1, dies]), num_workers=1, restarts=0)),
    "an exit": ("STK802", lambda: drained(Rows([1, leaves]), num_workers=1, restarts=0)),
    "init": ("STK810", lambda: drained(Rows([1, 2]), num_workers=1, worker_init_fn=fails)),
    "batch": ("STK406", lambda: drained(Rows([1, 2]), num_workers=1, collate_fn=lambda rows: (each for each in rows))),
    "closed": ("STK902", closed),
    "a sample": ("STK404", lambda: drained(Rows([1, breaks]))),
    "a sample, in a thread": ("STK404", lambda: drained(Rows([1, breaks]), num_workers=1, executor="thread")),
    "init, in a thread": ("STK810", lambda: drained(Rows([1, 2]), num_workers=1, executor="thread", worker_init_fn=fails)),
}  # fmt: skip


@pytest.mark.parametrize("name", OWN)
def test_what_stoker_raises_is_recognised(name):
    code, provoke = OWN[name]
    with pytest.raises(Exception) as caught:
        provoke()
    error = caught.value
    assert [code in note for note in notes(error)] == [True] * (
        code != "STK404"
    )  # of the dataset's own errors nothing is said
    found = stoker.explain(error)
    assert found.code == code, str(found)
    printed = "".join(traceback.format_exception(error))
    if isinstance(error.__cause__, errors.WorkerTraceback):
        assert "stoker explain" not in str(error.__cause__)
    assert stoker.explain(printed).code == code
    without = "\n".join(line for line in printed.splitlines() if "stoker explain" not in line)
    assert stoker.explain(without).code == code, without


HAZARDS = (start_method.HAZARDS[0],)
LOGGED = {
    "stalled": (
        "STK804",
        "train.py:9: WorkerStalled: DataLoader 'a' has waited 31.0 s for batch 3 (none has arrived yet) [stoker explain STK804]",
    ),
    "a hazard avoided": ("STK303", start_method._moves("train", HAZARDS)),
    "a hazard that stays": ("STK303", start_method._stays("train", HAZARDS, ValueError("no"))),
    "a worker replaced": (
        "STK603",
        """train: DataLoader worker (pid 3) is killed by signal: Killed (SIGKILL); a new worker takes its place.
  worker 0 was on dataset index 3 (row 1 of batch 3)
  likely cause: out of memory: the kernel's OOM killer struck (limit 2 GiB)""",
    ),
    "no OOM kill": (
        "STK801",
        """RuntimeError: DataLoader worker (pid 3) is killed by signal: Killed (SIGKILL).
  likely cause: somebody sent it SIGKILL (a job scheduler, another program, a person): the kernel counts no OOM kill""",
    ),
}


@pytest.mark.parametrize("name", LOGGED)
def test_what_stoker_logs_is_recognised(name):
    code, text = LOGGED[name]
    assert stoker.explain(text).code == code
    assert stoker.explain(text.replace("stoker explain", "")).code == code
