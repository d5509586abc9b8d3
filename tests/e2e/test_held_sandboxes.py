"""Sandboxes that a process forks of itself and sends to a doctor that comes later."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from stoker._tools.doctor.examination import doctor
from stoker._tools.sandbox import held
from stoker._tools.sandbox.held import HeldSandboxes
from stoker._tools.sandbox.target import subject_of


@pytest.fixture
def at(tmp_path: Path) -> Path:
    """Below a folder whose path is too long for a socket."""
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    return folder / "doctor"


@pytest.fixture
def sandboxes(at: Path) -> Iterator[HeldSandboxes]:
    found = HeldSandboxes(at)
    yield found
    found.close()


def _hold(at: Path) -> None:
    loader = DataLoader(TensorDataset(torch.zeros(40, 2)), batch_size=4)
    held.hold(subject_of(loader, name="train.py:3"), None, at, lambda: None)


def _gone(pid: int) -> bool:
    """Waits for the end of a process that is no child."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], 20)[0])
    finally:
        os.close(handle)


def test_the_doctor_examines_what_the_process_had(at: Path, sandboxes: HeldSandboxes) -> None:
    _hold(at)
    (one,) = sandboxes.take()
    found = doctor(one, select=["STK4"])
    assert found.subject == "train.py:3 (a DataLoader of torch's)"
    assert found.facts["target"].length == 40
    assert found.facts["samples"].batch_rows == 4
    assert _gone(one.pid)


def test_one_that_nobody_takes_ends(at: Path, sandboxes: HeldSandboxes) -> None:
    _hold(at)
    (one,) = sandboxes.take()
    one.close()
    assert _gone(one.pid)


def test_a_reason_travels_in_place_of_one(at: Path, sandboxes: HeldSandboxes) -> None:
    held.refuse("train.py:3", "no room", at)
    (one,) = sandboxes.take()
    assert (one.name, one.refusal) == ("train.py:3", "no room")
    one.close()


def test_nobody_has_to_wait_for_the_copy_to_close_a_pipe(at: Path, sandboxes: HeldSandboxes) -> None:
    reader, writer = os.pipe()
    _hold(at)
    (one,) = sandboxes.take()
    os.close(writer)
    try:
        assert select.select([reader], [], [], 20)[0]
        assert os.read(reader, 1) == b""
    finally:
        os.close(reader)
        one.close()
    assert _gone(one.pid)


def test_who_is_not_there_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        _hold(tmp_path / "nobody")
