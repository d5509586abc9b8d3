"""Another user of the machine: reads nothing of ours, writes nothing, replaces nothing, and does not make us open theirs."""

from __future__ import annotations

import json
import logging
import os
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from multiprocessing import forkserver, process
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import Dataset

import stoker
from stoker._host import private_files
from stoker._receipt import receipt_file
from stoker._record import journal
from stoker._record.journal import Journal
from stoker._record.run_page.page import RunPage
from stoker._runtime.autoscale import profile_files
from stoker._runtime.autoscale.profile import Profile
from stoker._runtime.autoscale.ranks.rank_consensus import RankConsensus
from stoker._runtime.cache.storage import attaching, backing
from stoker._runtime.cache.storage.store import data_start, header
from stoker._runtime.executors.process import launcher
from stoker._runtime.simulation.setting import Setting
from stoker._tools.top.processes import scan
from tests.fault.other_user import (
    OTHER,
    acting,
    as_other,
    everything_in,
    needs_root,
    opened_by_other,
    shared_folder,
)
from tests.unit.records import loader, run

pytestmark = needs_root
DATA: Any = range(40)
RANKS = {
    "LOCAL_WORLD_SIZE": "2",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "2",
    "RANK": "0",
    "MASTER_ADDR": "x",
    "MASTER_PORT": "1",
}


@pytest.fixture
def place() -> Iterator[Path]:
    with shared_folder() as folder:
        yield folder


@pytest.fixture
def temporary(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """TMPDIR is a folder that all users share, and there is no other place."""
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return place


# What we make


def _profile(place: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(profile_files.VARIABLE, str(place / "profiles"))
        profile_files.save(Profile("0" * 32, 64, "m", Setting(workers=2)))


def _receipt(place: Path) -> None:
    made: Any = stoker.DataLoader(DATA, batch_size=4)
    list(made)
    made.receipt().save(place / "run.receipt")


def _recorded(place: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(journal.ENVIRONMENT, str(place / "records"))
        with closing(stoker.DataLoader(DATA, batch_size=4, num_workers=1)) as made:
            list(made)


def _ranks(place: Path) -> None:
    found = RankConsensus.join({**RANKS, "XDG_RUNTIME_DIR": ""}, "key")
    assert found is not None
    _kept.append(found)


def _cache_file(place: Path) -> None:
    plan = attaching.StorePlan("ab" * 12, 4, 1 << 20, bytes(32), str(place / "cache"), "label")
    store = attaching._open(plan, None)
    store.close()


_kept: list[Any] = []
MAKERS: dict[str, Callable[[Path], object]] = {
    "journal": lambda place: Journal(place / "run.jsonl").append(run(loader())),
    "record": lambda place: journal.write(run(loader()), place / "run.json"),
    "loader's records": _recorded,
    "receipt": _receipt,
    "profile": _profile,
    "ranks": _ranks,
    "cache": _cache_file,
    "temporary folder": lambda place: Path(private_files.temporary_folder("stoker-run-"), "x").touch(),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_nobody_else_reads_or_writes_what_we_make(kind: str, temporary: Path) -> None:
    old = os.umask(0)  # modes must not depend on it
    try:
        MAKERS[kind](temporary)
        files = [each for each in everything_in(temporary) if each.is_file()]
        assert files
        assert opened_by_other(*files) == []
        shown = [each for each in files if each.parent.stat().st_mode & 0o077]
        assert [oct(each.stat().st_mode & 0o777) for each in shown if each.stat().st_mode & 0o077] == []
    finally:
        os.umask(old)
        while _kept:
            _kept.pop().close()


@pytest.mark.parametrize("kind", ["profile", "ranks", "cache", "temporary folder"])
def test_nobody_else_enters_our_folders(kind: str, temporary: Path) -> None:
    try:
        MAKERS[kind](temporary)
        folders = [each for each in everything_in(temporary) if each.is_dir()]
        assert folders

        def enters() -> list[str]:
            found = []
            for folder in folders:
                with suppress(OSError):
                    found.append(f"lists {folder}: {os.listdir(folder)}")
                with suppress(OSError):
                    (folder / "planted").touch()
                    found.append(f"writes into {folder}")
                with suppress(OSError):
                    folder.rename(f"{folder}-away")
                    found.append(f"renames {folder}")
            return found

        assert as_other(enters) == []
    finally:
        while _kept:
            _kept.pop().close()


@pytest.mark.parametrize("start", ["fork", "forkserver"])
def test_nobody_else_reaches_the_memory_and_sockets_of_a_run(start: str) -> None:
    """Arena, status page, run page and cache are files without a name, which /proc shows."""
    plan = attaching.StorePlan("cd" * 12, 4, 1 << 20, bytes(32))
    with (
        closing(attaching._open(plan, None)),
        closing(stoker.DataLoader(DATA, batch_size=4, num_workers=2, multiprocessing_context=start)) as made,
    ):
        iterator = iter(made)
        next(iterator)
        pids = [os.getpid(), *(each.pid for each in psutil.Process().children(recursive=True))]
        assert len(pids) > 2
        held = {f"/proc/{pid}/fd/{number}" for pid in pids for number in os.listdir(f"/proc/{pid}/fd")}
        names = {os.readlink(each) for each in held if os.path.lexists(each)}
        assert {"stoker-arena", "stoker-status", "stoker-run", f"stoker-cache-{plan.token}"} <= {
            each.removeprefix("/memfd:").removesuffix(" (deleted)") for each in names
        }
        assert opened_by_other(*sorted(held), *(f"/proc/{pid}/mem" for pid in pids)) == []
        del iterator


def test_nobody_else_connects_to_the_fork_server() -> None:
    launcher._find_place()
    forkserver.ensure_running()
    folder = process.current_process()._config["tempdir"]  # type: ignore[attr-defined]
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    address = forkserver._forkserver._forkserver_address  # type: ignore[attr-defined]
    assert not address.startswith("\0")

    def connects() -> str:
        with socket.socket(socket.AF_UNIX) as line:
            try:
                line.connect(address)
            except PermissionError:
                return "refused"
        return "connected"

    assert as_other(connects) == "refused"


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "theirs"])
def test_top_shows_a_user_their_own_loaders_only(ours: bool) -> None:
    def looks() -> list[int]:
        return [each.pid for each in scan().loaders]

    def makes() -> int:
        _kept.append(RunPage.create())
        return os.getpid()

    if ours:
        with closing(stoker.DataLoader(DATA, batch_size=4, num_workers=1)) as made:
            next(iter(made))
            assert os.getpid() in looks()
            assert as_other(looks) == []
    else:
        with acting(makes, until_told=True) as answer:
            assert answer() not in looks()


# What others have prepared


def test_a_folder_of_another_user_is_not_used(temporary: Path) -> None:
    """The name is known to all: who takes it first must not keep the local ranks, or caches, from working."""
    taken = temporary / f"stoker-{os.geteuid()}"
    as_other(lambda: taken.mkdir(mode=0o777))
    found = private_files.private_folder({})
    try:
        assert found != taken
        assert private_files.private_folder({}) == found
        assert (os.stat(found).st_uid, stat.S_IMODE(os.stat(found).st_mode)) == (os.geteuid(), 0o700)
        joined = RankConsensus.join(RANKS, "key")
        assert joined is not None
        joined.close()
        assert everything_in(taken) == []
    finally:
        with suppress(OSError):
            found.rmdir()


@pytest.mark.parametrize("what", ["folder", "file", "link", "pipe"])
def test_if_every_name_is_taken_that_is_said(
    what: str, temporary: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(private_files, "_SHARED_FOLDERS", ())
    mine, taken = temporary / "mine", temporary / f"stoker-{os.geteuid()}"
    mine.mkdir(mode=0o700)
    as_other({
        "folder": lambda: taken.mkdir(mode=0o777),
        "file": lambda: taken.touch(),
        "link": lambda: taken.symlink_to(mine),
        "pipe": lambda: os.mkfifo(taken),
    }[what])  # fmt: skip
    with pytest.raises(PermissionError, match="Set XDG_RUNTIME_DIR to a folder with mode 700"):
        private_files.private_folder({})
    with caplog.at_level(logging.WARNING, "stoker"):
        assert RankConsensus.join(RANKS, "key") is None
    assert "each has its own: " in caplog.text
    assert everything_in(mine) == []


@pytest.mark.parametrize("mode", [0o777, 0o755], ids=["not sticky", "of another user"])
def test_no_temporary_folder_is_made_where_others_can_rename_it(
    mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shared_folder(mode) as folder:
        if mode == 0o755:
            os.chown(folder, OTHER, OTHER)
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        made = Path(private_files.temporary_folder("stoker-run-"))
        try:
            assert made.parent != folder
            assert stat.S_IMODE(made.stat().st_mode) == 0o700
        finally:
            made.rmdir()
        monkeypatch.setattr(private_files, "keeps_names", lambda _: False)
        with pytest.raises(PermissionError, match="set TMPDIR to one of your own"):
            private_files.temporary_folder("stoker-run-")


def test_a_profile_of_another_user_starts_no_workers(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(profile_files.VARIABLE, str(place / "profiles"))
    name = profile_files._name("0" * 32, 64, "m", 1)
    text = json.dumps(Profile("0" * 32, 64, "m", Setting(workers=9)).as_dict())
    monkeypatch.setattr(profile_files, "machine_key", lambda: "m")

    def plants() -> None:
        (place / "profiles").mkdir()
        (place / "profiles" / name).write_text(text)

    as_other(plants)
    assert profile_files.find_key("0" * 32, 64, ranks=1) is None
    with pytest.raises(PermissionError, match="belongs to another user"):
        profile_files.save(Profile("0" * 32, 64, "m", Setting(workers=2)))
    os.chown(place / "profiles", 0, 0)
    assert profile_files.find_key("0" * 32, 64, ranks=1) is None
    os.chown(place / "profiles" / name, 0, 0)
    assert profile_files.find_key("0" * 32, 64, ranks=1) is not None


@pytest.mark.parametrize("what", ["file", "link", "pipe"])
@pytest.mark.parametrize("kind", ["journal", "receipt"])
def test_a_planted_name_gets_nothing_of_ours(kind: str, what: str, place: Path) -> None:
    path = place / {"journal": "run.jsonl", "receipt": "run.receipt"}[kind]
    mine = place / "mine"
    mine.write_text("precious")
    as_other({
        "file": lambda: path.touch(),
        "link": lambda: path.symlink_to(mine),
        "pipe": lambda: os.mkfifo(path, 0o666),
    }[what])  # fmt: skip
    with pytest.raises(OSError):
        MAKERS[kind](place) if kind == "journal" else receipt_file.append(path, b"x")
    assert mine.read_text() == "precious"
    assert path.is_fifo() or path.read_bytes() in (b"", b"precious")


@pytest.mark.parametrize("what", ["folder", "file", "link"])
def test_a_cache_opens_no_file_of_another_user(what: str, place: Path) -> None:
    folder = place / "cache"
    plan = attaching.StorePlan("ab" * 12, 4, 1 << 20, bytes(32), str(folder), "label")
    theirs = header(4, 1 << 20, bytes(32)).ljust(data_start(4), b"\0")

    def plants() -> None:
        (place / "theirs").write_bytes(theirs)
        if what == "folder":
            folder.mkdir(mode=0o700)
            backing.file_in(folder, "label").write_bytes(theirs)

    as_other(plants)
    if what != "folder":
        folder.mkdir(mode=0o700)
        path = backing.file_in(folder, "label")
        if what == "link":
            path.symlink_to(place / "theirs")
        else:
            path.write_bytes(theirs)
            os.chown(path, OTHER, OTHER)
    with pytest.raises(PermissionError):
        attaching._open(plan, None)


@pytest.mark.parametrize("hinted", [True, False])
def test_a_cache_does_not_attach_to_the_memory_of_another_user(hinted: bool) -> None:
    """What it finds there would be unpickled."""
    token = "ef" * 12

    def makes() -> list[int]:
        fd = os.memfd_create(backing.MEMORY_PREFIX + token, 0)
        os.fchmod(fd, 0o666)
        os.pwrite(fd, header(4, 1 << 20, bytes(32)).ljust(data_start(4), b"\0"), 0)
        return [os.getpid(), fd]

    with acting(makes, until_told=True) as answer:
        pid, fd = answer()
        assert os.path.exists(f"/proc/{pid}/fd/{fd}")
        assert backing.find_memory(token, (pid, fd) if hinted else None) is None


class Numbers(Dataset[Any]):
    """Samples that two users could keep under one name."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((10,), index)


def _entries(**kept: Any) -> int:
    """How many samples a cache finds that were kept before; then it keeps all, and stays open."""
    cached = stoker.cache(Numbers(), "4MiB", **kept)
    _kept.append(SimpleNamespace(cached=cached, close=cached._handle.open().close))
    found: int = cached.cache_info()["entries"]
    for index in range(40):
        cached[index]
    return found


@pytest.mark.parametrize("where", ["name", "path"])
def test_nobody_else_reaches_a_cache_that_workers_fill(where: str, temporary: Path) -> None:
    """Neither the memory, nor the file, nor the lock of its creation."""
    kept: Any = {"name": "common"} if where == "name" else {"path": temporary / "kept"}
    cached = stoker.cache(Numbers(), "4MiB", **kept)
    with closing(stoker.DataLoader(cached, batch_size=4, num_workers=2, persistent_workers=True)) as made:
        assert len(list(made)) == 10
        pids = [os.getpid(), *(each.pid for each in psutil.Process().children(recursive=True))]
        held = {f"/proc/{pid}/fd/{number}" for pid in pids for number in os.listdir(f"/proc/{pid}/fd")}
        assert where == "path" or any(
            "stoker-cache-" in os.readlink(each) for each in held if os.path.lexists(each)
        )
        assert opened_by_other(*sorted(held), *everything_in(temporary)) == []
    assert cached.cache_info()["entries"] == 40


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_two_users_of_one_name_have_a_store_each(first: str, temporary: Path) -> None:
    """The name, the dataset and the versions are the same, so both look for the same memory."""
    try:
        if first == "ours":
            assert _entries(name="common") == 0
            assert as_other(lambda: _entries(name="common")) == 0
            assert _entries(name="common") == 40
        else:
            with acting(lambda: _entries(name="common"), until_told=True) as answer:
                assert answer() == 0
                assert _entries(name="common") == 0
    finally:
        while _kept:
            _kept.pop().close()


def test_a_cache_on_a_disk_is_not_opened_for_another_user(temporary: Path) -> None:
    folder = temporary / "kept"
    try:
        assert _entries(path=folder) == 0

        def opens() -> str:
            try:
                _entries(path=folder)
            except PermissionError as error:
                return str(error)
            return "opened"

        assert "this folder belongs to another user" in as_other(opens)
    finally:
        while _kept:
            _kept.pop().close()


@pytest.mark.parametrize("mode", [0o777, 0o1777], ids=["not sticky", "sticky"])
def test_the_fork_server_has_its_socket_where_nobody_can_rename_it(
    mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = dict(process.current_process()._config, tempdir=None)  # type: ignore[attr-defined]
    monkeypatch.setattr(process.current_process(), "_config", config)
    with shared_folder(mode) as folder:
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        launcher._find_place()
        place = Path(config["tempdir"])
        assert (place.parent == folder) == (mode == 0o1777)
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        launcher._remove_place(str(place))
