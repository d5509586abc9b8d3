"""``stoker advise`` on scripts as users have them: good, endless, failing, in need of arguments, without a loader."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SLOW = """
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return {length}
    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.full((8,), float(index))

def make():
    return DataLoader(Slow(), batch_size=8, shuffle=True, num_workers=0)

if __name__ == "__main__":
    print("begun")
    for _ in make():
        time.sleep(0.01)
"""


def _advise(folder: Path, text: str, *options: str, arguments: tuple[str, ...] = ()) -> Any:
    (folder / "train.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "stoker", "advise", *options, "train.py", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_an_endless_script_is_stopped_and_its_edit_can_be_applied(tmp_path: Path) -> None:
    done = _advise(tmp_path, SLOW.format(length=10**6), "--budget", "6", "--write", "-o", "page.html")
    assert done.returncode == 0, done.stderr
    assert "begun" in done.stderr
    assert "was stopped after" in done.stderr
    assert done.stdout.startswith("--- a/train.py\n+++ b/train.py\n")
    changed = (tmp_path / "train.py").read_text()
    assert "shuffle=True, num_workers=" in changed
    assert "num_workers=0" not in changed
    assert (tmp_path / "page.html").read_text().startswith("<!")


def test_a_script_that_ends_gets_json_with_the_patch(tmp_path: Path) -> None:
    done = _advise(tmp_path, SLOW.format(length=400), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["format"], found["version"], found["exit"], found["stopped"]) == (
        "stoker-advice",
        1,
        "0",
        False,
    )
    assert found["edits"][0]["code"] == "more-workers"
    assert found["examined"] == ["train.py:make"]
    assert "+    return DataLoader(" in found["patch"]
    assert any("2 workers" in each for each in found["forecast"])


def test_scripts_that_do_not_end_well(tmp_path: Path) -> None:
    needy = "import argparse\np = argparse.ArgumentParser()\np.add_argument('data')\np.parse_args()\n"
    done = _advise(tmp_path, needy)
    assert done.returncode == 1
    assert "give the arguments it needs" in " ".join(done.stdout.split())
    done = _advise(tmp_path, "raise ValueError('no data')\n")
    assert done.returncode == 1
    assert "stoker explain" in done.stdout
    done = _advise(tmp_path, "print('fine')\n")
    assert done.returncode == 1
    assert "used no DataLoader" in done.stdout
    done = _advise(tmp_path, "import time\ntime.sleep(600)\n", "--budget", "1")
    assert done.returncode == 1
    assert "no loader was asked for a batch" in " ".join(done.stdout.split())


HANGING = """
import time
from torch.utils.data import DataLoader, Dataset

class Never(Dataset):
    def __len__(self):
        return 100
    def __getitem__(self, index):
        time.sleep(600)

if __name__ == "__main__":
    for _ in DataLoader(Never(), num_workers=1):
        pass
"""


def test_samples_that_hang_get_advice_though_no_edit_helps(tmp_path: Path) -> None:
    done = _advise(
        tmp_path, HANGING, "--budget", "15", "--json"
    )  # time enough to import torch on a busy machine
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["edits"] == []
    assert [each["code"] for each in found["further"]] == ["no-batch"]


def test_a_secret_of_the_command_line_or_the_output_is_written_nowhere(tmp_path: Path) -> None:
    secret = "sk-abcdefghijklmnop123456"
    text = SLOW.format(length=400) + f"\nprint('{secret}')\n"
    done = _advise(
        tmp_path, text, "-o", "page.html", arguments=("--api-key", "abcdef123456", f"--url=a?token={secret}")
    )
    assert done.returncode == 0, done.stderr
    for written in (done.stdout, (tmp_path / "page.html").read_text()):
        assert secret not in written
        assert "abcdef123456" not in written


def test_what_cannot_be_started_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stoker", "advise", "missing.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "there is no script" in done.stderr
