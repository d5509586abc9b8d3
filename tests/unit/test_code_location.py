"""Whose a file is goes by where it lies, not by the names of folders."""

from __future__ import annotations

import os

import numpy
import pytest

import stoker
from stoker._host import code_location
from stoker._tools.doctor.reading import clues

OURS = os.path.join(os.path.dirname(stoker.__file__), "loader.py")


@pytest.mark.parametrize(
    "path",
    [
        "/home/me/stoker/train.py",
        "/home/me/stoker/src/data/loader.py",
        os.path.join(os.path.dirname(OURS), os.pardir, "train.py"),
        "train.py",
    ],
)
def test_scripts_in_a_clone_called_stoker_are_the_users(path: str) -> None:
    path = os.path.normpath(path)
    assert not code_location.is_stoker(path)
    assert not code_location.is_library(path)
    assert clues.user_frame(f'  File "{path}", line 7, in read\n', 0) == f"{path}:7 in read"


def test_the_packages_own_files_are_not() -> None:
    assert code_location.is_stoker(OURS)
    assert code_location.is_library(OURS)
    assert clues.user_frame(f'  File "{OURS}", line 7, in read\n', 0) == ""


def test_a_log_of_another_machine_goes_by_our_private_packages() -> None:
    assert (
        clues.user_frame('  File "/elsewhere/src/stoker/_runtime/engine/pool.py", line 7, in next\n', 0) == ""
    )


def test_python_and_what_is_installed_are_libraries() -> None:
    assert code_location.is_standard(os.__file__)
    assert code_location.is_library(os.__file__)
    assert code_location.is_installed(numpy.__file__)
    assert not code_location.is_standard(numpy.__file__)
