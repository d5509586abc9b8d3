"""A run that is killed leaves receipts beside its record, and ``stoker verify`` reads them."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from stoker._receipt import receipt_file
from stoker.cli.main import main
from tests.e2e.receipts import found, text_of

SCRIPT = """
import os, pathlib, sys, time, stoker
folder, number = pathlib.Path(sys.argv[1]), int(sys.argv[2])
for count, batch in enumerate(stoker.DataLoader(range(100_000), batch_size=4, shuffle=True, record=folder), 1):
    time.sleep(0.01)  # a step of training: far fewer rows than are hashed at once
    if list(folder.glob("*.receipt")):
        print(count, flush=True)
        os.kill(os.getpid(), number)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_leaves_a_receipt_of_the_batches_before(tmp_path, number):
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), str(int(number))], capture_output=True, text=True
    )
    assert ran.returncode == -number
    handed_over = int(ran.stdout)
    [path] = tmp_path.glob("*.receipt")
    [receipt] = receipt_file.read(path).receipts
    assert 0 < receipt.batches < handed_over
    assert receipt.samples == 4 * receipt.batches
    assert len(receipt.entries) == receipt.batches
    assert text_of(found(tmp_path), "unfinished") == (
        f"the epoch did not end: it was left after {receipt.batches} batch{'es' if receipt.batches > 1 else ''}"
    )
    answer = CliRunner().invoke(main, ["verify", str(tmp_path)])
    assert answer.exit_code == 0
    assert f"left after {receipt.batches} batch" in answer.output
