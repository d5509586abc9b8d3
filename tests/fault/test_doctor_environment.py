"""The doctor in processes of the kinds that it warns of: a console, one with a default device, a daemon."""

from __future__ import annotations

from tests import warm

CONSOLE = """
import threading, torch, stoker
from torch.utils.data import DataLoader, Dataset

class Pictures(Dataset):
    def __len__(self): return 64
    def __getitem__(self, index): return torch.zeros(3, device="cpu")

torch.multiprocessing.set_sharing_strategy("file_system")
torch.set_default_device("meta")
ended = threading.Event()
thread = threading.Thread(target=ended.wait, name="MyPrefetcher")
thread.start()
codes = ["STK209", "STK302", "STK303", "STK305", "STK306"]
for method in ("spawn", "fork"):
    loader = DataLoader(Pictures(), batch_size=4, num_workers=2, multiprocessing_context=method)
    diagnosis = stoker.doctor(loader, select=codes)
    print(method, [(each.code, each.severity, each.where) for each in diagnosis.findings], diagnosis.skipped)
ended.set()
thread.join()
"""

DAEMON = """
import multiprocessing, torch, stoker
from torch.utils.data import DataLoader, TensorDataset

def fold(end):
    loader = DataLoader(TensorDataset(torch.arange(40)), num_workers=2)
    diagnosis = stoker.doctor(loader, select=["STK306"])
    end.send([(each.code, each.severity) for each in diagnosis.findings])

context = multiprocessing.get_context("fork")
mine, theirs = context.Pipe()
process = context.Process(target=fold, args=(theirs,), daemon=True)
process.start()
print(mine.recv())
process.join()
"""


def test_a_console_with_a_device_a_strategy_and_a_thread() -> None:
    ended = warm.run(["-c", CONSOLE], timeout=60)
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == [
        (
            "spawn [('STK302', 'high', '__main__.Pictures'), ('STK209', 'moderate', 'torch.multiprocessing'), "
            "('STK305', 'low', 'torch.set_default_device')] ()"
        ),
        (
            "fork [('STK305', 'high', 'torch.set_default_device'), ('STK209', 'moderate', 'torch.multiprocessing'), "
            "('STK303', 'low', 'MyPrefetcher')] ()"
        ),
    ]


def test_a_daemon() -> None:
    ended = warm.run(["-c", DAEMON], timeout=60)
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == ["[('STK306', 'high')]"]
