"""``stoker profile`` and ``stoker run``, as a user has them: beside ``python`` on the same script."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import zipapp
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from stoker._record import journal
from tests.warm import environment

BOUND_S = 60
"""How long a command may take; it only bounds a failure."""

WHO_AM_I = """
import __main__, os, pickle, sys, traceback
class Mine: pass
assert pickle.loads(pickle.dumps(Mine())).__class__ is Mine is __main__.Mine
seen = {key: value for key, value in os.environ.items() if key != "STOKER_RECORD"}
print(__name__, sys.argv, sys.orig_argv, __file__, sys.path, __spec__ and __spec__.name, __package__, __builtins__, __doc__)
print(sys.flags, sys.warnoptions, sys._xoptions, sys._getframe().f_back, sorted(vars()), seen, os.getcwd(), os.getpgid(0))
print(sys.stdin.read(), sys.stdin.isatty(), sys.modules.get("sitecustomize"), sorted(os.listdir("/proc/self/fd")))
traceback.print_stack()
"""

SCRIPTS = {
    "cause": "def f():\n  raise KeyError(1)\ntry:\n  f()\nexcept KeyError as e:\n  raise ValueError('x') from e",
    "group": "raise ExceptionGroup('two', [ValueError(1), ExceptionGroup('more', [TypeError(2)])])",
    "syntax": "print('not reached')\nif True print(1)",
    "indent": "def f():\nprint(1)",
    "import": "import no_such_module",
    "text": "raise SystemExit('a text')",
    "code": "import sys, atexit\natexit.register(print, 'bye')\nsys.exit(300)",
    "none": "raise SystemExit",
    "keyboard": "import atexit\natexit.register(print, 'bye')\nraise KeyboardInterrupt",
    "interrupted": "import os, signal\nos.kill(os.getpid(), signal.SIGINT)",
    "hard": "import os\nprint('lost')\nos._exit(7)",
    "killed": "import os\nos.kill(os.getpid(), 9)",
    "segv": "import faulthandler, ctypes\nfaulthandler.enable()\nctypes.string_at(0)",
    "abort": "import os\nos.abort()",
    "thread": "import threading\nthreading.Timer(.01, print, ['late']).start()",
    "warning": "import warnings\nwarnings.warn('w', DeprecationWarning)",
    "child": "import os, sys\nif os.fork():\n  os.wait()\n  sys.exit(4)\nsys.exit(5)",
    "pipe": "import os\nr, w = os.pipe()\nos.close(r)\nos.write(w, b'x')",
    "closed": "import os\nos.close(2)\nprint('still')\n1/0",
    "hook": "import sys\nsys.excepthook = lambda *a: print('mine', a[0])\n1/0",
    "spawn": (
        "import multiprocessing as mp\n"
        "class Mine:\n  pass\n"
        "def work(mine, queue):\n  import __main__, sys\n  queue.put((type(mine) is Mine, __main__.__name__, __name__, sys.argv))\n"
        "if __name__ == '__main__':\n"
        "  for how in ('spawn', 'forkserver'):\n"
        "    ctx = mp.get_context(how)\n"
        "    queue = ctx.SimpleQueue()\n"
        "    p = ctx.Process(target=work, args=(Mine(), queue))\n"
        "    p.start()\n    print(queue.get())\n    p.join()\n    print(p.exitcode)\n"
    ),
}  # fmt: skip


def started(words: Sequence[str], cwd: Path, **options: Any) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, *words], cwd=cwd, text=True, stdin=pipe, stdout=pipe, stderr=pipe, **options
    )


def ended(process: subprocess.Popen[str], given: str = "") -> tuple[int, str, str]:
    with process:
        out, err = process.communicate(given, timeout=BOUND_S)
    return process.returncode, out, err


def stoker(
    *words: str, cwd: Path, flags: Sequence[str] = (), given: str = "", **options: Any
) -> tuple[int, str, str]:
    return ended(started([*flags, "-m", "stoker", *words], cwd, **options), given)


def both(
    words: Sequence[str], cwd: Path, flags: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> list[tuple[Any, ...]]:
    """What Python and ``stoker profile`` make of the same command line, side by side."""
    env = env or environment()
    alone = started([*flags, *words], cwd, env=env)
    under = started([*flags, "-m", "stoker", "profile", "-q", "--no-follow", *words], cwd, env=env)
    found = [ended(each, "given") for each in (alone, under)]
    return [(code, *(re.sub("0x[0-9a-f]+", "<address>", text) for text in texts)) for code, *texts in found]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_ends_as_it_would_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPTS[name])
    alone, under = both(["script.py"], tmp_path)
    assert under == alone


def test_a_script_finds_itself_as_it_would_alone(tmp_path: Path) -> None:
    """Name, argv, path, flags, environment, streams and frames; as a file, a folder, an archive, a module and a package."""
    package = tmp_path / "package"
    package.mkdir()
    for path in (tmp_path / "script.py", tmp_path / "single.py", package / "__main__.py"):
        path.write_text(WHO_AM_I)
    zipapp.create_archive(package, tmp_path / "archive.pyz")
    (package / "__init__.py").write_text("")
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("")
    shown = ["--help", "-m", "-o", "x", "--", "-"]
    for words, flags in (
        (["script.py", *shown], []),
        ([str(tmp_path / "script.py")], ["-O", "-W", "error", "-Xutf8", "-B"]),
        (["package", *shown], ["-s"]),
        (["archive.pyz", *shown], ["-X", "dev"]),
        (["-m", "single", *shown], ["-bbu"]),
        (["-m", "package", *shown], []),
        ([str(package), *shown], ["-P"]),
    ):
        env = {**environment()}
        if words[0] == "package":
            env["PYTHONPATH"] = os.pathsep.join([str(site), env["PYTHONPATH"]])
        alone, under = both(words, tmp_path, flags, env)
        assert under == alone
        assert alone[0] == 0
        assert ("module 'sitecustomize' from" in alone[1]) == (words[0] == "package")


def test_the_environment_of_a_script_whose_processes_are_followed(tmp_path: Path) -> None:
    """It has three variables more, and PYTHONPATH begins with stoker's folder; ``sys.path`` does not."""
    (tmp_path / "script.py").write_text(
        "import os, json, sys\nprint(json.dumps([dict(os.environ), sys.path]))"
    )
    env = {**environment()}
    (alone, path), (under, same) = (
        json.loads(ended(started([*before, "script.py"], tmp_path, env=env))[1])
        for before in ((), ("-m", "stoker", "run", "-q"))
    )
    assert under.keys() - alone.keys() == {"STOKER_FOLLOW", "STOKER_MODE", "STOKER_RECORD"}
    assert under["PYTHONPATH"].endswith(os.pathsep + alone["PYTHONPATH"])
    assert {key for key in alone if alone[key] != under[key]} == {"PYTHONPATH"}
    assert same == path


STARTER = """
import os, subprocess, sys
train = "from torch.utils.data import DataLoader; print(len(list(DataLoader(range(6), batch_size=2))), flush=True)"
for rank in range(2):
    subprocess.run([sys.executable, "-c", train], env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"}, check=True)
subprocess.run([sys.executable, "-I", "-c", train], check=True)
"""


def test_processes_that_the_script_starts_are_followed(tmp_path: Path) -> None:
    """Their records are one, with a line per rank. An isolated interpreter reads no PYTHONPATH, so it is not entered."""
    (tmp_path / "script.py").write_text(STARTER)
    code, out, err = stoker("run", "-o", "run.json", "script.py", cwd=tmp_path, env=environment())
    assert (code, out) == (0, "3\n" * 3), err
    loaders = journal.read(tmp_path / "run.json").loaders
    assert [(each.engine, each.totals.steps, each.name) for each in loaders] == [
        ("stoker", 3, "loader, rank 0"),
        ("stoker", 3, "loader, rank 1"),
    ]
    assert re.search(
        r"^Ranks     0  3 batches by stoker's engine, .*\n {10}1  3 batches by stoker's", err, re.MULTILINE
    )
    code, out, err = stoker("run", "--no-follow", "script.py", cwd=tmp_path, env=environment())
    assert (code, out) == (0, "3\n" * 3), err
    assert "were not followed. Leave --no-follow out" in err


LISTENER = """
import os, signal, sys
def told(number, _):
    seen.append(signal.Signals(number).name)
    print(seen[-1], flush=True)
seen = []
for each in ('SIGTERM', 'SIGUSR1', 'SIGHUP', 'SIGINT', 'SIGRTMIN'): signal.signal(getattr(signal, each), told)
print(os.getpid(), flush=True)
sys.stdin.readline()
print(*seen)
sys.exit(9)
"""


def test_signals_reach_the_script_once(tmp_path: Path) -> None:
    """Sent to the command alone, or to its process group; the script decides what they mean."""
    (tmp_path / "script.py").write_text(LISTENER)
    process = started(["-m", "stoker", "profile", "script.py"], tmp_path, start_new_session=True)
    sent = ["SIGTERM", "SIGUSR1", "SIGHUP", "SIGINT", "SIGRTMIN"]
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        for send in (os.kill, os.killpg):
            for name in sent:
                send(process.pid, getattr(signal, name))
                assert process.stdout.readline() == f"{name}\n"
        out, err = process.communicate("\n", timeout=BOUND_S)
    assert out.split() == [*sent, *sent]
    assert process.returncode == 9
    assert "No DataLoader delivered a batch" in err
    assert list(tmp_path.iterdir()) == [tmp_path / "script.py"]


def test_keys_at_the_terminal_are_the_scripts(tmp_path: Path) -> None:
    """Ctrl-C comes once, and the terminal is the script's standard input."""
    (tmp_path / "script.py").write_text(LISTENER)
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execve(sys.executable, [sys.executable, "-m", "stoker", "run", "script.py"], environment())
    with open(fd, "r+b", buffering=0) as terminal:
        read_until(terminal, rb"\d+\r\n")
        terminal.write(b"\x03")
        read_until(terminal, rb"SIGINT\r\n")
        terminal.write(b"go on\n")
        shown = read_until(terminal, rb"Verdict")
        assert shown.count(b"SIGINT") == 1
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9


def read_until(terminal: Any, wanted: bytes) -> bytes:
    """What the terminal shows, up to something."""
    seen = b""
    while not re.search(wanted, seen):
        assert select.select([terminal], [], [], BOUND_S)[0], seen
        seen += os.read(terminal.fileno(), 4096)
    return seen


def test_the_script_dies_with_the_command(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import os, signal\nprint(os.getpid(), flush=True)\nsignal.pause()")
    environ = {**os.environ, "TMPDIR": str(tmp_path)}  # nobody is left to remove what is in it
    process = started(["-m", "stoker", "run", "script.py"], tmp_path, env=environ)
    with process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        watch = os.pidfd_open(pid)
        process.kill()
        assert process.stdout.read() == ""  # closed with the script's death
    os.close(watch)


def test_the_record_of_a_script_that_was_killed(tmp_path: Path) -> None:
    """Files in the folder count as they are, one that was cut off too; the record and the exit tell how it ended."""
    (tmp_path / "script.py").write_text(
        "import os, sys\nfrom pathlib import Path\n"
        "from stoker._record import journal\nfrom tests.unit.records import loader, run\n"
        "folder = Path(os.environ['STOKER_RECORD'])\n"
        "assert folder.stat().st_mode & 0o777 == 0o700\n"
        "journal.write(run(loader()), folder / '1-0.jsonl')\n"
        "if os.fork() == 0:\n  journal.write(run(loader(), pid=2), folder / '2-0.jsonl')\n  os._exit(0)\n"
        "os.wait()\n(folder / '3-0.jsonl').write_text('{\"format\": \"sto')\nprint(folder, flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    code, out, err = stoker(
        "profile", "-o", "run.json", "script.py", "--epochs", "3", cwd=tmp_path, env=environment()
    )
    assert code == -signal.SIGKILL
    assert not Path(out.strip()).exists()
    record = journal.read(tmp_path / "run.json")
    assert (record.run.exit, record.run.ended, record.run.argv) == (
        "SIGKILL",
        False,
        ["script.py", "--epochs", "3"],
    )
    assert len(record.loaders) == 2
    assert "SIGKILL" in err
    assert "3-0.jsonl" in err


TRAINING = """
import os, sys
from torch.utils.data import DataLoader, Dataset, IterableDataset
import torch

class Rows(Dataset):
    def __init__(self, count, inner=None):
        self.count, self.inner = count, inner
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        if self.inner is not None:
            return sum(len(batch) for batch in DataLoader(self.inner, batch_size=2))
        return torch.full((4,), float(index))

class Mine(DataLoader):
    def __iter__(self):
        for batch in super().__iter__():
            yield batch + 100

class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(6))

def rank(number, queue):
    loader = DataLoader(Rows(10), batch_size=5)
    queue.put((number, [int(batch[0, 0]) for batch in loader], isinstance(loader, DataLoader)))

if __name__ == "__main__":
    torch.manual_seed(0)
    never = DataLoader(Rows(4))
    outer = DataLoader(Rows(6, Rows(4)), batch_size=2, num_workers=2, shuffle=True)
    for batch in outer:
        print(batch, [int(row[0, 0]) for row in Mine(Rows(2))])
    for row in DataLoader(Stream(), batch_size=3):
        print(row)
        break
    print([int(a[0, 0] + b[0, 0]) for a, b in zip(DataLoader(Rows(3)), DataLoader(Rows(3)))])
    if os.fork() == 0:
        print(len(list(DataLoader(Rows(8), batch_size=4))))
        sys.exit(0)
    os.wait()
    if "spawn" in sys.argv:
        queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
        torch.multiprocessing.spawn(rank, (queue,))
        print(queue.get())
    print(isinstance(never, DataLoader), isinstance(outer, DataLoader), sys.argv)
    raise ValueError("the end")
"""


PRINTED = """\
tensor([4, 4]) [100, 101]
tensor([4, 4]) [100, 101]
tensor([4, 4]) [100, 101]
tensor([0, 1, 2])
[0, 2, 4]
2
{ranks}True True ['script.py'{words}]
"""


@pytest.mark.parametrize(
    ("mode", "engine", "spawn"), [("profile", "torch", []), ("run", "stoker", ["spawn"])]
)
def test_every_loader_of_a_training_script(mode: str, engine: str, spawn: list[str], tmp_path: Path) -> None:
    """Several, nested, in a fork, in a spawned rank, left early, never iterated; then the script dies.

    The record has every loader that the training loop asked, with what it handed over.
    """
    (tmp_path / "script.py").write_text(TRAINING)
    files = ["-o", "run.json", "--verdict", "verdict.json", "--trace", "trace.json"]
    words = [mode, *files, "script.py", *spawn]
    code, out, err = stoker(*words, cwd=tmp_path, env=environment())
    printed = PRINTED.format(ranks="(0, [0, 5], True)\n" * len(spawn), words=", 'spawn'" * len(spawn))
    assert (code, out) == (1, printed)
    trace, _, summary = err.partition("ValueError: the end\n")
    assert trace.startswith("Traceback (most recent call last):\n  File")
    assert trace.count("File") == 1
    assert summary.lstrip().startswith("Verdict")
    record = journal.read(tmp_path / "run.json")
    assert (record.run.exit, record.run.ended) == ("1", True)
    found = Counter[str]()
    for each in record.loaders:
        assert each.engine == engine
        found[each.dataset.rpartition(".")[2]] += each.totals.steps
    assert found == {"Rows": 3 + 3 * 2 + 2 * 3 + 2 + 2 * len(spawn), "Stream": 1}
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    assert verdict["headline"] in " ".join(summary.split())
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
