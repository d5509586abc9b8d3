"""``stoker advise`` on scripts as users have them: good, endless, failing, in need of arguments, without a loader."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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


def _advise(
    folder: Path, text: str, *options: str, arguments: tuple[str, ...] = (), script: str = "train.py"
) -> Any:
    (folder / "train.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "stoker", "advise", *options, script, *arguments],
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
    page = (tmp_path / "page.html").read_text()
    assert page.startswith("<!")
    assert "What other settings would change" in page


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
    assert found["examined"] == ["train.py:14 (a DataLoader of torch's)"]
    assert "+    return DataLoader(" in found["patch"]
    assert any("2 workers" in each["text"] for each in found["forecast"])
    assert {each["subject"] for each in found["forecast"]} == {
        "workers",
        "cache",
        "device",
        "share",
        "threads",
    }


def test_scripts_that_do_not_end_well(tmp_path: Path) -> None:
    needy = "import argparse\np = argparse.ArgumentParser()\np.add_argument('data')\np.parse_args()\n"
    done = _advise(tmp_path, needy)
    assert done.returncode == 1
    assert "give the arguments it needs" in " ".join(done.stdout.split())
    assert done.stdout.count("ended with 2") == 1
    done = _advise(tmp_path, "raise ValueError('no data')\n")
    assert done.returncode == 1
    assert "stoker explain" in " ".join(done.stdout.split())
    done = _advise(tmp_path, "print('fine')\n")
    assert done.returncode == 1
    assert "used no DataLoader" in done.stdout
    done = _advise(tmp_path, "import time\ntime.sleep(600)\n", "--budget", "1")
    assert done.returncode == 1
    assert "no loader was asked for a batch" in " ".join(done.stdout.split())


def test_a_script_that_fails_early_is_not_judged_by_its_first_batches(tmp_path: Path) -> None:
    text = STUCK.replace("time.sleep(600)", "raise ValueError('torn')").format(workers=1)
    done = _advise(tmp_path, text, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"].startswith("The script failed after")
    assert found["exit"] == "1"
    assert "STK404" in {each["code"] for each in found["findings"]}


STUCK = """
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Stuck(Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        if index == 100:
            time.sleep(600)
        return torch.zeros(8)

if __name__ == "__main__":
    for _ in DataLoader(Stuck(), batch_size=8, num_workers={workers}):
        pass
"""

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


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sample_that_hangs_after_a_while_is_named(tmp_path: Path, workers: int) -> None:
    done = _advise(tmp_path, STUCK.format(workers=workers), "--budget", "15", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["hang"]["usual_ns"] < found["hang"]["waited_ns"]
    assert "dataset index" in found["hang"]["place"]
    assert "died" not in done.stdout
    assert "100" in next(each["evidence"] for each in found["findings"] if each["code"] == "STK411")


TRAINS_AT_THE_TOP = """
import sys
import time
import torch
from torch.utils.data import DataLoader, Dataset

assert sys.argv[1:] == ["--data", "here"]

class Slow(Dataset):
    def __len__(self):
        return 160
    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.zeros(8)

class Trainer:
    def __init__(self, loader):
        self.loader = loader
    def fit(self):
        for _ in self.loader:
            pass
        with open("trained", "a") as file:
            file.write("once ")

loader = DataLoader(Slow(), batch_size=8, num_workers=1)
trainer = Trainer(loader)
trainer.fit()
"""


def test_the_training_runs_once_and_its_loader_is_examined(tmp_path: Path) -> None:
    done = _advise(tmp_path, TRAINS_AT_THE_TOP, "-o", "advice.json", arguments=("--data", "here"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "trained").read_text() == "once "
    found = json.loads((tmp_path / "advice.json").read_text())
    assert found["format"] == "stoker-advice"
    assert found["examined"] == ["train.py:25 (a DataLoader of torch's)"]
    assert "train.py --data here prints the patch" in " ".join(done.stdout.split())


def test_a_module_is_run_as_python_does(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "train.py").write_text(SLOW.format(length=400))
    done = _advise(tmp_path, "", "--json", "-m", script="package.train")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["examined"] == ["train.py:14 (a DataLoader of torch's)"]
    assert "+++ b/package/train.py" in found["patch"]


def test_ctrl_c_shows_what_was_seen_and_says_so(tmp_path: Path) -> None:
    begun = 'open("under_way", "w").close() if _[0][0] % 40 == 0 else None'
    text = SLOW.format(length=10**6).replace("time.sleep(0.01)", begun)
    (tmp_path / "train.py").write_text(text)
    process = subprocess.Popen(
        [sys.executable, "-m", "stoker", "advise", "--budget", "100", "--write", "train.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with process:
        while not (tmp_path / "under_way").exists() and process.poll() is None:
            select.select([], [], [], 0.05)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=100)
    assert process.returncode == 130, stderr
    assert "Ctrl-C ended the script" in stderr
    assert "the time is over" not in stderr
    assert "num_workers" in stderr
    assert stdout == ""
    assert "num_workers=0" in (tmp_path / "train.py").read_text()


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
