"""The line of a script that led to a call."""

from __future__ import annotations

import os
import sysconfig
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stoker._record.call_site import site, warn

PACKAGES = sysconfig.get_path("purelib")


def called_from(path: str, call: Any) -> Any:
    """Call from line 3 of a file that is said to lie there."""
    names: dict[str, Any] = {"call": call}
    exec(compile("\n\ndef go(): return call()", path, "exec"), names)
    return names["go"]()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_below_the_current_folder_is_named_from_there(here: Path) -> None:
    assert called_from(str(here / "project" / "train.py"), site) == "project/train.py:3"


def test_a_file_elsewhere_is_named_alone(here: Path) -> None:
    assert called_from("/elsewhere/train.py", site) == "train.py:3"


def test_libraries_and_stoker_are_passed_over(here: Path) -> None:
    within = os.path.dirname(os.path.dirname(os.path.abspath(site.__code__.co_filename)))

    def deep() -> Any:
        return called_from(f"{within}/loader.py", lambda: called_from(f"{PACKAGES}/timm/loader.py", site))

    # This file is on the way as well, and comes last only because the ones below are libraries.
    assert str(called_from("train.py", deep)).startswith(os.path.basename(__file__))


def test_a_folder_that_is_gone_does_no_harm(here: Path) -> None:
    gone = here / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    try:
        assert called_from("/elsewhere/train.py", site) == "train.py:3"
    finally:
        os.chdir(here)


def test_a_warning_points_at_the_users_line_and_module(here: Path) -> None:
    names: dict[str, Any] = {"warn": partial(warn, "odd", UserWarning), "__name__": "train"}
    exec(compile("def ask(): warn()", os.path.join(PACKAGES, "library.py"), "exec"), names)
    exec(compile("\n\ndef go(): ask()", str(here / "train.py"), "exec"), names)
    with pytest.warns(UserWarning, match="odd") as caught:
        names["go"]()
    assert (caught[0].filename, caught[0].lineno) == (str(here / "train.py"), 3)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="train")
        names["go"]()
