"""Checks of the environment: scripts, notebooks, forks, devices, daemons."""

from __future__ import annotations

import threading
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest

from stoker._tools.doctor.facts.process import ForkUnsafeLibrary
from stoker._tools.doctor.facts.scan import ScanFacts, Unsendable
from stoker._tools.doctor.probes.process import interactive, probe
from stoker._tools.doctor.sources.unguarded import uses
from tests.unit.doctor.given import found, only, process, target

UNGUARDED = dedent("""
    from torch.utils.data import DataLoader
    loader = DataLoader(ds, num_workers=2)
    for epoch in range(2):
        for batch in loader:
            step(batch)
""")


@pytest.mark.parametrize(
    ("line", "source"),
    [
        (5, UNGUARDED),
        (3, "import torch\n\nlist(torch.utils.data.DataLoader(ds, num_workers=n))"),
        (
            3,
            "from torch.utils.data import DataLoader as DL\nloader = DL(ds, num_workers=2)\nx = next(iter(loader))",
        ),
        (
            3,
            "loader = DataLoader(ds, 32, num_workers=2)\nfrom tqdm import tqdm\nfor i, b in enumerate(tqdm(loader)): pass",
        ),
        (2, "loader = DataLoader(ds, num_workers=2)\nlosses = [f(b) for b in loader]"),
        (4, "def main():\n    for b in DataLoader(ds, num_workers=2): f(b)\n\nmain()"),
        (
            5,
            "def make():\n    return DataLoader(ds, num_workers=2)\n\nloader = make()\nfor b in loader: f(b)",
        ),
        (6, "def go(data):\n    for b in data: f(b)\n\n\nloader = DataLoader(ds, num_workers=2)\ngo(loader)"),
        (2, "loader = DataLoader(ds, num_workers=2)\ntrainer.fit(model, loader)"),
        (2, "loader = DataLoader(ds, num_workers=2)\ntrainer.fit(model, train_dataloaders=loader)"),
        (4, "def inner():\n    for b in DataLoader(ds, **options): f(b)\ndef outer(): inner()\nouter()"),
        (
            3,
            "train, val = make()\nwith open('log') as log:\n    for b in DataLoader(ds, num_workers=2): f(b)",
        ),
        (
            4,
            "def make():\n    a = DataLoader(ds, num_workers=2)\n    return a, 3\nfor b in make()[0]: f(b)\n",
        ),
        (2, "loaders = {'train': DataLoader(ds, num_workers=2)}\nfor b in loaders['train']: f(b)"),
        (3, "if __name__ == '__main__':\n    pass\nelse: list(DataLoader(ds, num_workers=2))"),
        (3, "class Loader(DataLoader): pass\nif cuda:\n    list(Loader(ds, num_workers=2))"),
    ],
)
def test_scripts_that_start_workers_when_imported(line: int, source: str) -> None:
    assert [each.line for each in uses(source)][:1] == [line]


@pytest.mark.parametrize(
    "source",
    [
        "loader = DataLoader(ds, num_workers=2)",
        "loader = DataLoader(ds, num_workers=2)\nprint(len(loader))\nfor i in range(len(loader)): pass",
        "loader = DataLoader(ds)\nfor b in loader: f(b)",
        "loader = DataLoader(ds, num_workers=0)\nfor b in loader: f(b)",
        "if __name__ == '__main__':\n    for b in DataLoader(ds, num_workers=2): f(b)",
        "if '__main__' == __name__:\n    for b in DataLoader(ds, num_workers=2): f(b)",
        "if __name__ == '__main__' and not quick:\n    for b in DataLoader(ds, num_workers=2): f(b)",
        "if __name__ in ('__main__', '__mp_main__x'):\n    list(DataLoader(ds, num_workers=2))",
        "if multiprocessing.current_process().name == 'MainProcess':\n    list(DataLoader(ds, num_workers=2))",
        "if multiprocessing.parent_process() is None:\n    list(DataLoader(ds, num_workers=2))",
        "if __name__ != '__main__':\n    raise SystemExit\nlist(DataLoader(ds, num_workers=2))",
        "import sys\nif __name__ != '__main__':\n    sys.exit()\nlist(DataLoader(ds, num_workers=2))",
        "def main():\n    for b in DataLoader(ds, num_workers=2): f(b)\n\nif __name__ == '__main__':\n    main()",
        "def main():\n    for b in DataLoader(ds, num_workers=2): f(b)\n\ncli.add_command(main)",
        "run = lambda: list(DataLoader(ds, num_workers=2))",
        "loader = DataLoader(ds, num_workers=2)\nloader = [1, 2]\nfor b in loader: f(b)",
        "rows = [1, 2]\nfor row in rows: f(row)\ntrain(rows)",
        "try:\n    import cv2\nexcept ImportError:\n    pass\nif __name__ == '__main__':\n    list(DataLoader(ds, num_workers=2))",
        "pair = (DataLoader(ds, num_workers=2), DataLoader(ds, num_workers=2))\nfor loader in pair: print(len(loader))",
        "loaders = {'train': DataLoader(ds, num_workers=2)}\nfor name in loaders: print(name)",
        "for b in loader",
    ],
)
def test_scripts_that_do_not(source: str) -> None:
    assert uses(source) == ()


def test_301_by_start_method() -> None:
    finding = only("STK301", target=target(source=UNGUARDED, file="/home/me/train.py", start_method="spawn"))
    assert (finding.severity, finding.where) == ("high", "train.py:5")
    assert "for … in loader" in finding.evidence
    assert finding.edit is not None
    assert (finding.edit.kind, finding.edit.site) == ("guard", "train.py:5")
    assert only("STK301", target=target(source=UNGUARDED)).severity == "low"


def test_301_guarded_or_ours() -> None:
    guarded = UNGUARDED.replace("for epoch", "if __name__ == '__main__':\n  for epoch")
    assert (
        found("STK301", target=target(source=guarded.replace("        for", "    for"), start_method="spawn"))
        == []
    )
    assert found("STK301", target=target(source=UNGUARDED, engine="stoker", start_method="spawn")) == []
    assert found("STK301", target=target(source=UNGUARDED, num_workers=0, start_method="spawn")) == []


def test_main_modules_that_no_new_process_could_import() -> None:
    assert interactive(SimpleNamespace())
    assert interactive(SimpleNamespace(__file__="<stdin>", __spec__=None))
    assert not interactive(SimpleNamespace(__file__=__file__, __spec__=None))
    assert not interactive(SimpleNamespace(__spec__="the spec of python -m package"))


def test_302_a_class_without_a_file() -> None:
    aim = target(dataset_class="__main__.Pictures", start_method="spawn")
    finding = only("STK302", process=process(interactive=True), target=aim)
    assert finding.where == "__main__.Pictures"
    assert "%%writefile pictures.py" in finding.advice


@pytest.mark.parametrize(
    ("interactive", "changes"),
    [
        (True, {"dataset_class": "__main__.Pictures"}),
        (True, {"dataset_class": "data.Pictures", "start_method": "spawn"}),
        (False, {"dataset_class": "__main__.Pictures", "start_method": "spawn"}),
        (True, {"dataset_class": "__main__.Pictures", "start_method": "spawn", "engine": "stoker"}),
        (True, {"dataset_class": "__main__.Pictures", "start_method": "spawn", "num_workers": 0}),
    ],
)
def test_302_a_class_that_workers_find(interactive: bool, changes: dict[str, Any]) -> None:
    assert found("STK302", process=process(interactive=interactive), target=target(**changes)) == []


def test_303_a_listed_pool() -> None:
    risky = process(hazards=(ForkUnsafeLibrary("polars", "compute pool"),), native_threads=9)
    finding = only("STK303", process=risky, target=target())
    assert (finding.severity, finding.where) == ("high", "polars")
    assert "polars (compute pool)" in finding.evidence
    assert only("STK303", process=risky, target=target(engine="stoker")).severity == "none"


def test_303_threads_that_are_not_listed() -> None:
    own = process(python_threads=("MyPrefetcher", "tqdm_monitor"), native_threads=12)
    finding = only("STK303", process=own, target=target())
    assert (finding.severity, finding.where, finding.numbers["python_threads"]) == ("low", "MyPrefetcher", 1)
    assert finding.edit is not None


def test_303_threads_of_a_notebook_are_no_risk() -> None:
    names = ("Shell channel", "Thread-2 (_watch_pipe_fd)")
    assert found("STK303", process=process(python_threads=names, tool_threads=names), target=target()) == []
    mixed = process(python_threads=(*names, "MyPrefetcher"), tool_threads=names)
    assert only("STK303", process=mixed, target=target()).where == "MyPrefetcher"


class Kernels(threading.Thread):
    """A thread of a class that ipykernel defines."""


Kernels.__module__ = "ipykernel.shellchannel"


def test_threads_of_a_notebook_are_known_by_their_code() -> None:
    """Whatever their names are: some have none of their own."""
    wait = threading.Event()

    def watch_pipe() -> None:
        wait.wait()

    def read_ahead() -> None:
        wait.wait()

    watch_pipe.__module__ = "ipykernel.iostream"
    threads = [
        Kernels(target=wait.wait, name="Shell channel"),
        threading.Thread(target=watch_pipe, name="Thread-2"),
        threading.Thread(target=read_ahead, name="reader"),
    ]
    for thread in threads:
        thread.start()
    try:
        facts = probe(SimpleNamespace())  # type: ignore[arg-type]
    finally:
        wait.set()
        for thread in threads:
            thread.join()
    assert {"Shell channel", "Thread-2", "reader"} <= set(facts.python_threads)
    assert {"Shell channel", "Thread-2"} <= set(facts.tool_threads)
    assert "reader" not in facts.tool_threads


def test_303_a_fork_server_is_not_advised_to_what_cannot_be_sent_there() -> None:
    held = ScanFacts(
        unsendable=(Unsendable("dataset.pool", "ThreadPoolExecutor", "cannot pickle it", "", True),)
    )
    for risky in (process(hazards=(ForkUnsafeLibrary("polars", "pool"),)), process(python_threads=("Own",))):
        finding = only("STK303", process=risky, target=target(), scan=held)
        assert finding.edit is None
        assert "once dataset.pool can be sent there" in finding.advice


def test_303_threads_that_say_nothing() -> None:
    assert found("STK303", process=process(native_threads=64), target=target()) == []
    risky = process(hazards=(ForkUnsafeLibrary("polars", "compute pool"),))
    assert found("STK303", process=risky, target=target(start_method="forkserver")) == []
    assert found("STK303", process=risky, target=target(num_workers=0)) == []
    assert found("STK303", process=process(python_threads=("tqdm_monitor",)), target=target()) == []


def test_305_a_default_device() -> None:
    cuda = process(default_device="cuda")
    finding = only("STK305", process=cuda, target=target(shuffle=True, num_workers=0))
    assert finding.severity == "high"
    assert "the sampler cannot shuffle" in finding.evidence
    assert "forked worker" in only("STK305", process=cuda, target=target()).evidence
    assert only("STK305", process=cuda, target=target(start_method="spawn")).severity == "low"


def test_305_the_cpu_or_ours() -> None:
    assert found("STK305", process=process(), target=target(shuffle=True)) == []
    assert found("STK305", process=process(default_device="cuda"), target=target(engine="stoker")) == []


def test_306_a_daemon() -> None:
    finding = only("STK306", process=process(daemonic=True), target=target())
    assert finding.severity == "high"
    assert finding.edit is not None
    assert finding.edit.after == "num_workers=0"


def test_306_a_daemon_that_needs_no_children() -> None:
    assert found("STK306", process=process(daemonic=True), target=target(num_workers=0)) == []
    assert found("STK306", process=process(daemonic=True), target=target(engine="stoker")) == []
    assert found("STK306", process=process(), target=target()) == []
