"""``python -m benchmarks.doctor``: how long an examination takes, of a dataset of 100,000 files and of the machine alone.

Files are links to a few hundred JPEGs, so that making them takes seconds; the dataset lists the folder and keeps the paths, as
people do. Each round starts the command as a user would. Seconds are what is asked here, so seconds are reported: the bounds are 15
with a target and 1 without.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import stoker

_PICTURES = 256
_FILES_BOUND_S, _MACHINE_BOUND_S = 15.0, 1.0

_MODULE = '''
"""Pictures of a folder, as people write it."""

import os
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

FOLDER = Path(__file__).parent / "pictures"


class Pictures(Dataset):
    def __init__(self, folder):
        self.paths = sorted(str(path) for path in Path(folder).rglob("*.jpg"))
        self.labels = [hash(path) % 10 for path in self.paths]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with Image.open(self.paths[index]) as picture:
            pixels = np.asarray(picture.convert("RGB").resize((224, 224)))
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255, self.labels[index]


def loader():
    return DataLoader(Pictures(FOLDER), batch_size=32, shuffle=True, num_workers=4)
'''


def build(folder: Path, files: int) -> None:
    """The module and its pictures, in folders of a thousand."""
    from PIL import Image

    (folder / "data.py").write_text(_MODULE)
    rng = np.random.default_rng(0)
    originals = []
    for number in range(_PICTURES):
        buffer = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).resize((256, 256)).save(
            buffer, "JPEG"
        )
        path = folder / f"original-{number}.jpeg"
        path.write_bytes(buffer.getvalue())
        originals.append(path)
    for number in range(files):
        part = folder / "pictures" / f"{number // 1000:03d}"
        if number % 1000 == 0:
            part.mkdir(parents=True)
        os.link(originals[number % _PICTURES], part / f"{number:06d}.jpg")


def timed(arguments: list[str]) -> tuple[float, int, int]:
    """Seconds of one examination, and how many checks found something and were made."""
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "stoker", "doctor", "--json", "--fail-on", "none", *arguments],
        stdout=subprocess.PIPE,
        check=True,
        timeout=300,
    )
    seconds = time.perf_counter() - begun
    answer = json.loads(done.stdout)
    found = {each["code"] for each in answer["findings"]}
    return seconds, len(found), len(found) + len(answer["passed"])


class _Made(Dataset[torch.Tensor]):
    """Samples that sleep, or are there at once."""

    def __init__(self, sleep_s: float) -> None:
        self.sleep_s = sleep_s

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.sleep_s:
            time.sleep(self.sleep_s)
        return torch.zeros(10)


def races() -> None:
    """Whether the race behind STK701 comes out as it must: workers divide sleep, and ten numbers are not worth one."""
    for name, sleep_s, slower in (("sleep 2 ms", 0.002, "inline"), ("ten numbers", 0.0, "loader")):
        loader = DataLoader(_Made(sleep_s), batch_size=16, num_workers=2)
        speed = stoker.doctor(loader, select=["STK701"]).facts["speed"]
        times = {"inline": speed.inline_s, "loader": speed.loader_s}
        verdict = "as it must be" if times[slower] == max(times.values()) else "WRONG"
        print(
            f"{name:20} {1e3 * times['inline']:.3g} ms without, {1e3 * times['loader']:.3g} ms with 2 workers: {verdict}"
        )


def main() -> None:
    """Rounds that alternate between the two, and their medians; then the races."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as name:
        build(Path(name), given.files)
        files = f"{given.files:,} files"
        cases = {files: [f"{name}/data.py:loader"], "the machine alone": []}
        seconds: dict[str, list[float]] = {case: [] for case in cases}
        for _ in range(given.rounds):
            for case, arguments in cases.items():
                taken, found, made = timed(arguments)
                seconds[case].append(taken)
                print(
                    f"{case:20} {taken:6.2f} s   {made} checks made, {found} of them found something",
                    flush=True,
                )
        for case, each in seconds.items():
            bound = _FILES_BOUND_S if case == files else _MACHINE_BOUND_S
            verdict = "met" if statistics.median(each) <= bound else "MISSED"
            print(f"{case:20} median {statistics.median(each):.2f} s of {bound:g}: {verdict}")
    races()


if __name__ == "__main__":
    main()
