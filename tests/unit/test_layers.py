"""The borders of the package: importing it does nothing, and a worker never pays for the tools.

Each question is put to a fresh interpreter: the one that runs the tests has imported far too much to answer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import stoker

HEAVY = {"torch", "numpy", "psutil", "cloudpickle", "threadpoolctl"}
TOOLS = {
    "stoker.cli",
    "stoker.exports",
    "stoker._tools",
}
TOOLS |= {"click", "rich", "prometheus_client", "tensorboard"}

IMPORTED = """
import json, sys
before = set(sys.modules)
import stoker
print(json.dumps(sorted(set(sys.modules) - before)))
"""

STATE_TOUCHED = """
import json, os, signal, sys, threading, warnings

def state():
    return {
        "descriptors": sorted(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "handlers": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "environment": dict(os.environ),
        "filters": [str(entry) for entry in warnings.filters],
        "path": sys.path[:],
        "hooks": [str(sys.excepthook), str(threading.excepthook), str(sys.unraisablehook)],
    }

before = state()
import stoker
after = state()
print(json.dumps([name for name in before if before[name] != after[name]]))
"""

MORE_STATE = """
        "mask": str(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "python's draws": hash(random.getstate()),
        "numpy's draws": str(numpy.random.get_state()),
        "torch's draws": torch.get_rng_state().tolist(),
        "torch": [
            torch.get_num_threads(), torch.get_default_dtype().__repr__(), torch.is_grad_enabled(),
            torch.multiprocessing.get_sharing_strategy(), str(torch.utils.data.default_collate), str(torch.utils.data.DataLoader),
        ],
        "start method": multiprocessing.get_start_method(allow_none=True),
        "garbage": [gc.isenabled(), gc.get_threshold(), len(gc.callbacks)],
        "logging": [logging.root.level, len(logging.root.handlers), len(logging.getLogger("stoker").handlers)],
        "limits": [resource.getrlimit(number) for number in range(10)],
        "interpreter": [sys.getrecursionlimit(), sys.getswitchinterval(), str(sys.gettrace()), os.getcwd(), str(sys.meta_path)],
        "locale": locale.setlocale(locale.LC_ALL),
"""

EACH_NAME = """
import gc, locale, logging, multiprocessing, random, resource
import numpy, torch
import stoker

touched = {}
for name in stoker.__all__:
    before = state()
    getattr(stoker, name)
    after = state()
    touched[name] = [what for what in before if before[what] != after[what]]
print(json.dumps(touched))
"""

PUBLIC = """
import json, stoker
print(json.dumps({
    "all": list(stoker.__all__),
    "listed": dir(stoker),
    "missing": [name for name in stoker.__all__ if not hasattr(stoker, name)],
}))
"""

WORKER_MODULES = """
import json, sys
from stoker import DataLoader

class Modules:
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return {"here": __name__, "modules": sorted(sys.modules)}

if __name__ == "__main__":
    with DataLoader(Modules(), batch_size=None, num_workers=1, multiprocessing_context=sys.argv[1]) as loader:
        [answer] = list(loader)
    print(json.dumps(answer["modules"]))
"""

NOT_NEEDED = {
    "stoker.loader",
    "stoker._runtime.cache.dataset",
    "stoker._runtime.cache.proving",
    "stoker._runtime.engine",
    "stoker._runtime.executors",
    "stoker._runtime.worker.split_batches",
}
"""What a worker imports only if its dataset, or a split batch, needs it."""


def ask(program: str, *arguments: str, folder: Path) -> object:
    """Run `program` as a script in a fresh interpreter and return the JSON it prints."""
    script = folder / "question.py"
    script.write_text(program)
    done = subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def packages_of(modules: object) -> set[str]:
    """Every module name together with all of its parents."""
    assert isinstance(modules, list)
    return {".".join(name.split(".")[:depth]) for name in modules for depth in range(1, name.count(".") + 2)}


def test_importing_stoker_imports_no_heavy_package(tmp_path: Path) -> None:
    assert not packages_of(ask(IMPORTED, folder=tmp_path)) & (HEAVY | TOOLS)


def test_importing_stoker_touches_no_process_state(tmp_path: Path) -> None:
    assert ask(STATE_TOUCHED, folder=tmp_path) == []


def test_importing_a_public_name_touches_no_process_state(tmp_path: Path) -> None:
    """threadpoolctl, which workers need, once set KMP_DUPLICATE_LIB_OK in the trainer."""
    program, _ = STATE_TOUCHED.split("before = state()")
    program = program.replace('        "hooks"', MORE_STATE.strip("\n") + '\n        "hooks"')
    answer = ask(program + EACH_NAME, folder=tmp_path)
    assert isinstance(answer, dict)
    assert set(answer) == set(stoker.__all__)
    assert {name: touched for name, touched in answer.items() if touched} == {}


def test_watching_needs_no_torch(tmp_path: Path) -> None:
    modules = packages_of(
        ask(IMPORTED.replace("import stoker\n", "import stoker.cli.top\n"), folder=tmp_path)
    )
    assert "stoker._tools.top" in modules
    assert not modules & (HEAVY | {"rich"})


def test_every_public_name_resolves_and_is_listed(tmp_path: Path) -> None:
    answer = ask(PUBLIC, folder=tmp_path)
    assert isinstance(answer, dict)
    assert "DataLoader" in answer["all"]
    assert answer["missing"] == []
    assert set(answer["all"]) <= set(answer["listed"])


@pytest.mark.parametrize("start_method", ["fork", "spawn", "forkserver"])
def test_a_worker_never_imports_the_tools(start_method: str, tmp_path: Path) -> None:
    modules = packages_of(ask(WORKER_MODULES, start_method, folder=tmp_path))
    assert "stoker._runtime.worker" in modules
    assert not modules & TOOLS


def test_a_spawned_worker_imports_only_what_every_worker_needs(tmp_path: Path) -> None:
    guarded = WORKER_MODULES.replace("from stoker import DataLoader\n", "").replace(
        '__main__":\n', '__main__":\n    from stoker import DataLoader\n'
    )
    modules = packages_of(ask(guarded, "spawn", folder=tmp_path))
    assert "stoker._runtime.worker.batch_maker" in modules
    assert not modules & NOT_NEEDED
