"""Iterators and loaders that outlive the modules of stoker at interpreter exit die without a word."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import holder  # imported first: its names are cleared after those of stoker and torch
import json, sys
import stoker

KEPT = ("stoker", "torch", "os", "holder")

def hold(**how):
    # Not in this module, and not in __main__: what dies with that is not printed about any more.
    loader = stoker.DataLoader(range(40), batch_size=4, **how)
    iterator = iter(loader)
    next(iterator)
    holder.held.append((iterator, loader))
    lasting = stoker.DataLoader(range(8), batch_size=4, **how)
    list(lasting)
    holder.held.append(lasting)

for how in json.loads(sys.argv[1]):
    hold(**how)
# A module that something still refers to has its names set to None: frameworks refer to many.
sys.kept = [module for name, module in sys.modules.items() if name.partition(".")[0] in KEPT]
"""
PROCESSES = '[{"num_workers": 1}, {"num_workers": 1, "persistent_workers": true}, {"num_workers": "auto"}]'
HERE = '[{}, {"num_workers": 2, "executor": "thread", "persistent_workers": true}]'
MORE = (
    '[{"num_workers": 1, "persistent_workers": true, "prefetch_epochs": true}, '
    '{"num_workers": 1, "multiprocessing_context": "forkserver"}, {"num_workers": 1, "record": "run.jsonl"}]'
)


@pytest.mark.parametrize("loaders", [PROCESSES, HERE, MORE])
def test_nothing_is_printed_about_what_dies_last(loaders: str, tmp_path: Path) -> None:
    (tmp_path / "holder.py").write_text("held = []\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    ran = subprocess.run(
        [sys.executable, "script.py", loaders], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
