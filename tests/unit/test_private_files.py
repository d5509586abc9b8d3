"""Files that are made in folders where other users can put links, pipes and files under the names we use."""

from __future__ import annotations

import ast
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import stoker
from stoker._host.private_files import open_append, open_stream, replacing, write_file
from stoker._receipt import receipt_file
from stoker._record import journal
from stoker._record.journal import Journal
from stoker._tools.report.trace import trace
from tests.unit.records import loader, run

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
OTHER = 65534

WRITERS: dict[str, Callable[[Path], object]] = {
    "append": lambda path: Journal(path).append(run(loader())),
    "rewrite": lambda path: journal.write(run(loader()), path),
    "trace": lambda path: trace.write(run(loader()), path, force=True),
    "receipt": lambda path: receipt_file.append(path, b"receipt"),
    "output": lambda path: write_file(path, b"text"),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_no_name_can_be_guessed_and_planted(kind: str, tmp_path: Path) -> None:
    """The fresh file beside the record once had the name of the process: a link of that name was followed."""
    mine, path = tmp_path / "mine.txt", tmp_path / "run.json"
    mine.write_text("precious")
    planted = tmp_path / f".{path.name}.{os.getpid()}"
    planted.symlink_to(mine)
    WRITERS[kind](path)
    assert mine.read_text() == "precious"
    assert planted.is_symlink()
    assert {each.name for each in tmp_path.iterdir()} == {"mine.txt", path.name, planted.name}


@root_only
@pytest.mark.parametrize("kind", WRITERS)
def test_a_link_of_another_user_is_refused_in_words(kind: str, tmp_path: Path) -> None:
    mine, path = tmp_path / "mine.txt", tmp_path / "run.json"
    mine.write_text("precious")
    path.symlink_to(mine)
    os.chown(path, OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(PermissionError, match="a link that another user made"):
        WRITERS[kind](path)
    assert mine.read_text() == "precious"


@root_only
@pytest.mark.parametrize("kind", ["append", "receipt"])
def test_nothing_is_added_to_the_file_of_another_user(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("")
    os.chown(path, OTHER, OTHER)
    with pytest.raises(PermissionError, match="belongs to another user"):
        WRITERS[kind](path)
    assert path.read_text() == ""


def test_a_planted_pipe_does_not_hang_the_run(tmp_path: Path) -> None:
    pipe = tmp_path / "run.jsonl"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="No such device"):
        Journal(pipe).append(run(loader()))


def test_a_link_of_the_user_is_followed(tmp_path: Path) -> None:
    mine, link = tmp_path / "mine.jsonl", tmp_path / "run.jsonl"
    link.symlink_to(mine)
    file = Journal(link)
    file.append(run(loader()))
    file.append(run(loader()))
    assert link.is_symlink()
    assert len(mine.read_text().splitlines()) == 2
    assert stat.S_IMODE(mine.stat().st_mode) == 0o600


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")
    with pytest.raises(RuntimeError), replacing(path) as fd:
        os.write(fd, b"half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_taken_name_is_not_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _: "known")
    (tmp_path / ".run.json.known").symlink_to(tmp_path / "mine")
    with pytest.raises(FileExistsError), replacing(tmp_path / "run.json"):
        pass
    assert not (tmp_path / "mine").exists()


def test_a_device_is_written_to(tmp_path: Path) -> None:
    os.close(open_append("/dev/null"))
    write_file(Path("/dev/null"), b"text")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_file_that_took_the_place_of_a_pipe_is_not_written_to(tmp_path: Path) -> None:
    """Between the look at a path and its opening, another process may put something else there."""
    file = tmp_path / "run.json"
    file.write_text("precious")
    with pytest.raises(FileExistsError):
        open_stream(file)
    assert file.read_text() == "precious"


@root_only
@pytest.mark.parametrize("sticky", [True, False])
def test_an_output_in_a_folder_like_tmp_is_never_the_file_of_another_user(
    sticky: bool, tmp_path: Path
) -> None:
    """In a folder that colleagues share the user may overwrite theirs; in one that is everybody's a file may be planted."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777 if sticky else 0o775)
    file = folder / "report.html"
    file.write_text("theirs")
    os.chown(file, OTHER, OTHER)
    if sticky:
        with pytest.raises(PermissionError, match="belongs to another user"):
            write_file(file, b"mine")
    else:
        write_file(file, b"mine")
    assert file.read_text() == ("theirs" if sticky else "mine")


@root_only
def test_an_output_does_not_wait_at_the_pipe_of_another_user(tmp_path: Path) -> None:
    pipe = tmp_path / "report.html"
    os.mkfifo(pipe)
    os.chown(pipe, OTHER, OTHER)
    with pytest.raises(PermissionError, match="belongs to another user"):
        write_file(pipe, b"mine")


def test_an_output_follows_the_links_of_its_user(tmp_path: Path) -> None:
    mine, link = tmp_path / "mine.html", tmp_path / "link.html"
    mine.write_text("old, and longer")
    link.symlink_to(mine)
    write_file(link, b"new")
    assert link.is_symlink()
    assert mine.read_text() == "new"


def test_an_output_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory") as raised:
        write_file(tmp_path, b"text")
    assert raised.value.errno == errno.EISDIR


_NOT_OURS = {"_host/private_files.py", "testing/bench.py"}
_NEITHER_LINK_NOR_FILE = {
    ("_tools/sandbox/server.py", "open"),  # descriptors 1 and 2, and /proc/self/oom_score_adj
    ("_tools/demo/acts/doctor.py", "open"),  # in a folder made by mkdtemp
    ("_tools/advise/in_script.py", "os.open"),  # O_EXCL, in a folder made by mkdtemp
    ("_runtime/autoscale/ranks/rank_file.py", "os.open"),  # in a private folder; its owner is checked after
    # A store that stays open to be read: O_EXCL and O_NOFOLLOW.
    ("_runtime/cache/storage/backing.py", "os.open"),
}


def test_every_file_that_we_make_goes_through_private_files() -> None:
    """A plain ``open(path, "w")`` follows whatever link stands at the path."""
    root = Path(stoker.__file__).parent
    found = {
        (str(path.relative_to(root)), call)
        for path in root.rglob("*.py")
        for call in _writing(ast.parse(path.read_text()))
        if str(path.relative_to(root)) not in _NOT_OURS
    }
    assert found == _NEITHER_LINK_NOR_FILE


def _writing(tree: ast.AST) -> list[str]:
    """Calls that open a path, and not a descriptor, for writing."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name.endswith((".write_text", ".write_bytes")):
            found.append(name.rpartition(".")[2])
        elif name == "os.open" and {"os.O_CREAT", "os.O_TRUNC"} & {
            ast.unparse(each) for each in ast.walk(node)
        }:
            found.append(name)
        elif name in ("open", "io.open") and len(node.args) > 1:
            opened, mode = ast.unparse(node.args[0]), ast.unparse(node.args[1])
            is_fd = opened in ("fd", "data_fd") or opened.startswith(("open_append(", "open_stream("))
            if set(mode) & set("wax+") and not is_fd:
                found.append(name)
        elif name.endswith(".open") and name != "os.open" and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and set(str(first.value)) & set("wa+"):
                found.append(name)
    return found
