"""timm, Ultralytics and litdata, which need torchvision: in an interpreter that has them on its path."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker._record import journal
from tests.frameworks.packages import APART, absent
from tests.warm import environment

if not torch.__version__.startswith("2.13"):
    pytest.skip("torchvision 0.28 belongs to torch 2.13", allow_module_level=True)
if not (APART / "torchvision").is_dir():
    absent(f"torchvision, timm, ultralytics and litdata are not in {APART}: `make setup` puts them there")

PRELUDE = """
import json, sys, warnings
warnings.simplefilter("ignore")
import torch
# Compiled for another build of torch, torchvision's own operators are missing. Its import asks for two of them.
operators = torch.library.Library("torchvision", "FRAGMENT")
for name in ("nms", "qnms"):
    try:
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    except RuntimeError:
        pass
from torch.utils.data import DataLoader, Dataset
import stoker
SWAPPED = "swapped" in sys.argv
if SWAPPED:
    from stoker._tools.profile import swap
    swap.install()
torch.manual_seed(5)
"""

TIMM = """
import timm.data
from timm.data.loader import MultiEpochsDataLoader
class Images(Dataset):
    def __len__(self):
        return 10
    def __getitem__(self, index):
        return torch.full((3, 8, 8), index, dtype=torch.uint8), index
told = {}
for multi in (False, True):
    loader = (MultiEpochsDataLoader if multi else DataLoader)(Images(), batch_size=4, num_workers=2, shuffle=True)
    told[str(multi)] = [target.tolist() for _ in range(2) for _, target in loader]
    told[f"ours {multi}"] = isinstance(loader, stoker.DataLoader)

from PIL import Image
class Pictures(Images):
    transform = None  # timm puts its own here
    def __getitem__(self, index):
        return self.transform(Image.new("RGB", (12, 12), (index, index, index))), index
told["created"] = []
for options in ({"is_training": True, "no_aug": True}, {"is_training": False}, {"is_training": True, "no_aug": True,
                "use_prefetcher": True, "device": torch.device("cpu")}, {"is_training": True, "no_aug": True,
                "use_multi_epochs_loader": True, "persistent_workers": False}):
    options = {"use_prefetcher": False, "persistent_workers": False, **options}
    loader = timm.data.create_loader(Pictures(), (3, 8, 8), batch_size=4, num_workers=2, **options)
    epochs = [(target.tolist(), pictures.mean(dim=(1, 2, 3)).tolist()) for _ in range(2) for pictures, target in loader]
    told["created"].append([len(loader), epochs, isinstance(getattr(loader, "loader", loader), stoker.DataLoader) == SWAPPED])
print(json.dumps(told))
"""

ULTRALYTICS = """
from ultralytics.data.build import InfiniteDataLoader
class Rows(Dataset):
    def __len__(self):
        return 10
    def __getitem__(self, index):
        return index
loader = InfiniteDataLoader(Rows(), batch_size=4, num_workers=2, shuffle=True)
told = {"batches": [batch.tolist() for _ in range(2) for batch in loader], "ours": isinstance(loader, stoker.DataLoader)}
loader.reset()
told["again"] = [batch.tolist() for batch in loader]
print(json.dumps(told))
"""

LITDATA = """
import logging
import litdata
from litdata.streaming.cache import Cache
cache = Cache(sys.argv[1], chunk_size=10)
if not SWAPPED:
    for each in range(40):
        cache[each] = {"number": each}
    cache.done()
    cache.merge()
said = []
handler = logging.Handler()
handler.emit = lambda record: said.append(record.getMessage())
logging.getLogger("stoker").addHandler(handler)
told = {}
for workers in (0, 2):
    loader = litdata.StreamingDataLoader(litdata.StreamingDataset(sys.argv[1]), batch_size=4, num_workers=workers)
    told[str(workers)] = [batch["number"].tolist() for _ in range(2) for batch in loader]
told["said"] = [each for each in said if "torch's" in each]
print(json.dumps(told))
"""


MEASURED = """
import sys
import litdata
loader = litdata.StreamingDataLoader(litdata.StreamingDataset(sys.argv[1]), batch_size=4, num_workers=2)
print(sum(1 for _ in range(2) for batch in loader))
"""


def both(script: str, *words: str) -> list[dict[str, object]]:
    """What a script says with torch's loaders, and with stoker's in their place."""
    found = []
    for swapped in ((), ("swapped",)):
        ran = subprocess.run(
            [sys.executable, "-c", PRELUDE + script, *words, *swapped],
            capture_output=True,
            text=True,
            env=environment(PYTHONPATH=f"{environment()['PYTHONPATH']}:{APART}", YOLO_CONFIG_DIR="/tmp"),
        )
        assert ran.returncode == 0, ran.stderr
        found.append(json.loads(ran.stdout.splitlines()[-1]))
    return found


def test_timm() -> None:
    torchs, ours = both(TIMM)
    assert [ours["False"], ours["True"]] == [torchs["False"], torchs["True"]]
    created: Any = ours["created"]
    assert created == torchs["created"]
    assert [(length, len(epochs), whose) for length, epochs, whose in created] == [
        (2, 4, True), (3, 6, True), (2, 4, True), (2, 4, True),
    ]  # fmt: skip
    assert [ours["ours False"], ours["ours True"], torchs["ours True"]] == [True, True, False]


def test_ultralytics() -> None:
    torchs, ours = both(ULTRALYTICS)
    assert ours["ours"]
    assert not torchs["ours"]
    assert ours["batches"] == torchs["batches"]
    assert len(ours["again"]) == 3  # type: ignore[arg-type]


def test_litdata_stays_torchs_and_says_so(tmp_path: Path) -> None:
    torchs, ours = both(LITDATA, str(tmp_path / "data"))
    assert [ours["0"], ours["2"]] == [torchs["0"], torchs["2"]]
    assert ours["said"] == [
        "loaders of litdata.streaming.dataloader.StreamingDataLoader stay torch's: it makes torch's iterators itself"
    ]
    (tmp_path / "train.py").write_text(MEASURED)
    record = tmp_path / "run.json"
    subprocess.run(
        [sys.executable, "-m", "stoker", "run", "-o", record, tmp_path / "train.py", tmp_path / "data"],
        capture_output=True, check=True, env=environment(PYTHONPATH=f"{environment()['PYTHONPATH']}:{APART}"),
    )  # fmt: skip
    [read] = journal.read(record).loaders
    assert (read.engine, read.totals.steps) == ("torch", 20)
