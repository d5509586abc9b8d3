"""Profiles on disk: what is saved is found again, for the same work alone, and only where nobody else could have written it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker._record.dataset_identity import dataset_key, machine_key
from stoker._runtime.autoscale import profile_files
from stoker._runtime.autoscale.profile import VERSION, Profile
from stoker._runtime.simulation.setting import Setting

ROWS = list(range(100))
SETTING = Setting(workers=3, prefetch=4, start_method="fork", split=False, threads=2, pin=True)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "kept"
    monkeypatch.setenv("STOKER_PROFILES", str(place))
    for name in ("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE", "OMPI_COMM_WORLD_LOCAL_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return place


def profile(dataset: Any = ROWS, batch_size: int | None = 64, **more: Any) -> Profile:
    return Profile(dataset_key(dataset), batch_size, machine_key(), **{"setting": SETTING, **more})


def test_what_is_saved_is_found() -> None:
    kept = profile(
        regime="sleep", made_at="2026-11-16 16:40 UTC", interval_ns=1.5e6, reason="waits", cpus=2.0
    )
    assert profile_files.find(ROWS, 64) is None
    profile_files.save(kept)
    assert profile_files.find(ROWS, 64) == kept


def test_other_work_finds_nothing() -> None:
    profile_files.save(profile())
    assert profile_files.find(ROWS, 32) is None
    assert profile_files.find(ROWS, None) is None
    assert profile_files.find(ROWS[:-1], 64) is None


def test_another_machine_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    profile_files.save(profile())
    monkeypatch.setattr(profile_files, "machine_key", lambda: "f" * 32)
    assert profile_files.find(ROWS, 64) is None


def test_the_latest_one_counts() -> None:
    profile_files.save(profile())
    profile_files.save(profile(setting=Setting(1)))
    found = profile_files.find(ROWS, 64)
    assert found is not None
    assert found.setting == Setting(1)


def test_ranks_have_their_own_and_take_another_if_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, eight = profile(setting=Setting(12)), profile(setting=Setting(2), ranks=8)
    profile_files.save(alone)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert profile_files.find(ROWS, 64) == alone
    profile_files.save(eight)
    assert profile_files.find(ROWS, 64) == eight
    assert profile_files.find(ROWS, 64, ranks=1) == alone


def test_files_are_private(folder: Path) -> None:
    path = profile_files.save(profile())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in folder.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '"text"',
        "[" * 50_000,
        "\x00",
        json.dumps({"format": "stoker-profile"}),
        json.dumps({"format": "stoker-profile", "version": VERSION + 1}),
        "x" * 100_000,
    ],
    ids=lambda text: text[:20],
)
def test_a_damaged_file_is_left_aside(content: str) -> None:
    path = profile_files.save(profile())
    path.write_text(content)
    assert profile_files.find(ROWS, 64) is None
    profile_files.save(profile())
    assert profile_files.find(ROWS, 64) is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("version", None),
        ("setting", {"workers": -1}),
        ("setting", {"workers": 10**9}),
        ("setting", {"workers": True}),
        ("setting", {"workers": 2, "executor": "os.system"}),
        ("setting", {"workers": 2, "start_method": ["fork"]}),
        ("setting", [2]),
        ("setting", None),
        ("plain", {"workers": -1}),
        ("batch_size", "64"),
        ("ranks", -3),
        ("interval_ns", "fast"),
        ("reason", "x" * 5000),
        ("dataset", None),
    ],
)
def test_values_that_no_profile_has_are_refused(name: str, value: Any) -> None:
    data = {**profile().as_dict(), name: value}
    with pytest.raises(ValueError):
        Profile.from_dict(json.loads(json.dumps(data)))
    path = profile_files.save(profile())
    path.write_text(json.dumps(data))
    assert profile_files.find(ROWS, 64) is None


def test_a_file_under_anothers_name_is_left_aside() -> None:
    path = profile_files.save(profile())
    other = profile_files.save(profile(batch_size=32))
    path.write_bytes(other.read_bytes())
    assert profile_files.find(ROWS, 64) is None


def test_what_others_may_write_to_is_not_read(folder: Path) -> None:
    path = profile_files.save(profile())
    path.chmod(0o666)
    assert profile_files.find(ROWS, 64) is None
    path.chmod(0o600)
    folder.chmod(0o777)
    assert profile_files.find(ROWS, 64) is None
    with pytest.raises(PermissionError, match="may be written to by others"):
        profile_files.save(profile())
    folder.chmod(0o700)
    assert profile_files.find(ROWS, 64) is not None


def test_what_belongs_to_somebody_else_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    profile_files.save(profile())
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert profile_files.find(ROWS, 64) is None
    with pytest.raises(PermissionError, match="belongs to another user"):
        profile_files.save(profile())


def test_links_and_pipes_are_not_read(folder: Path, tmp_path: Path) -> None:
    path = profile_files.save(profile())
    elsewhere = tmp_path / "elsewhere.json"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert profile_files.find(ROWS, 64) is None
    path.unlink()
    os.mkfifo(path, 0o600)
    assert profile_files.find(ROWS, 64) is None
    path.unlink()
    folder.rename(tmp_path / "real")
    folder.symlink_to(tmp_path / "real")
    assert profile_files.find(ROWS, 64) is None


def test_only_so_many_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_files, "_MOST", 3)
    for number in range(5):
        path = profile_files.save(profile(batch_size=number + 1))
        os.utime(path, (number, number))
    (folder / "notes.txt").write_text("mine")
    left = folder / ".new-killed"
    left.touch()
    os.utime(left, (0, 0))
    profile_files.save(profile(batch_size=9))
    assert [size for size in range(1, 10) if profile_files.find(ROWS, size)] == [4, 5, 9]
    assert (folder / "notes.txt").exists()
    assert not left.exists()


def test_where_they_are() -> None:
    home = os.path.expanduser("~")
    assert profile_files.folder({}) == Path(home, ".cache", "stoker", "profiles")
    assert profile_files.folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/stoker/profiles")
    assert profile_files.folder({"XDG_CACHE_HOME": "relative"}) == Path(home, ".cache", "stoker", "profiles")
    assert profile_files.folder({"STOKER_PROFILES": "/p", "XDG_CACHE_HOME": "/c"}) == Path("/p")
    assert profile_files.folder({"STOKER_PROFILES": "off"}) is None


def test_without_a_place_nothing_is_found_and_saving_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STOKER_PROFILES", "off")
    assert profile_files.find(ROWS, 64) is None
    with pytest.raises(OSError, match="STOKER_PROFILES is 'off'"):
        profile_files.save(profile())
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("STOKER_PROFILES", str(blocked / "inside"))
    assert profile_files.find(ROWS, 64) is None
    with pytest.raises(OSError):
        profile_files.save(profile())


@settings(max_examples=40, deadline=None)
@given(
    st.builds(
        Setting,
        workers=st.integers(0, 512),
        prefetch=st.none() | st.integers(1, 64),
        executor=st.sampled_from(["process", "thread"]),
        start_method=st.none() | st.sampled_from(["fork", "spawn", "forkserver"]),
        split=st.none() | st.booleans(),
        threads=st.integers(1, 64),
        pin=st.booleans(),
        engine=st.sampled_from(["stoker", "torch"]),
    ),
    st.none() | st.integers(1, 4096),
    st.floats(0, 1e12),
    st.text(max_size=50),
)
def test_a_profile_survives_json(
    setting: Setting, batch_size: int | None, interval: float, reason: str
) -> None:
    kept = Profile("d", batch_size, "m", setting, interval_ns=interval, reason=reason, plain=setting)
    assert Profile.from_dict(json.loads(json.dumps(kept.as_dict()))) == kept
