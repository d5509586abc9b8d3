"""``stoker tune`` as a user has it: one command, JSON on standard output, a record and a profile."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from stoker._runtime.autoscale.profile import Profile
from stoker.cli.main import main
from tests.warm import environment

SCRIPT = """\
from torch.utils.data import DataLoader


class Rows:
    def __len__(self):
        return 64

    def __getitem__(self, index):
        print("not for standard output")
        return index


loader = DataLoader(Rows(), batch_size=8)  # mine
"""


def test_one_command_answers_and_keeps_what_it_found(tmp_path: Path) -> None:
    """Beside a step of 200 ms, such samples are no matter as a rule, and then it says so without a race."""
    script, record, kept = tmp_path / "train.py", tmp_path / "tuning.json", tmp_path / "kept"
    script.write_text(SCRIPT)
    arguments = [
        "tune",
        "train.py:loader",
        "--step-ms",
        "200",
        "--budget",
        "8",
        "--json",
        "--output",
        str(record),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "stoker", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
        env=environment(STOKER_PROFILES=str(kept)),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told == json.loads(record.read_text())
    wanted = told["recommended"]
    assert (told["failure"], told["baseline"]) == ("", {"num_workers": 0})
    assert ("prefetch_factor" in wanted) == (wanted["num_workers"] > 0)
    assert bool(told["edits"]) == told["changed"]
    assert (told["target"], told["file"], told["line"]) == ("train.py:loader", str(script), 13)
    assert told["work"]["batch_ns"]
    assert told["demand"]["step_ns"] == 200_000_000

    [file] = kept.iterdir()
    profile = Profile.from_dict(json.loads(file.read_text()))
    assert told["profile"] == str(file)
    assert (profile.setting.workers, profile.batch_size, profile.name) == (wanted["num_workers"], 8, "Rows")

    result = CliRunner().invoke(main, ["tune", "--show", str(record), "--write"])
    assert result.exit_code == 0, result.output
    assert ("num_workers" in script.read_text()) == told["changed"]
    assert "# mine" in script.read_text()
