"""Rows about /dev/shm, descriptors and mappings: none of them is used up by batches, whatever people keep."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import stoker
from tests.fault.rows import run, said, small_shm

LARGE_BATCHES = """
    import os, sys
    import torch
    from stoker import DataLoader

    class Images(torch.utils.data.Dataset):
        def __len__(self):
            return 48

        def __getitem__(self, index):
            return torch.full((3 << 20,), index % 256, dtype=torch.uint8)

    def collate(samples):
        return {"images": torch.stack(samples), "first": int(samples[0][0])}

    if __name__ == "__main__":
        shm = os.statvfs("/dev/shm")
        assert shm.f_blocks * shm.f_frsize == 16 << 20
        for collate_fn in (None, collate):
            loader = DataLoader(
                Images(), batch_size=8, num_workers=2, prefetch_factor=4, multiprocessing_context=sys.argv[1],
                collate_fn=collate_fn,
            )
            kept = list(loader)  # 144 MiB
            for number, batch in enumerate(kept):
                images = batch["images"] if collate_fn else batch
                assert images.shape == (8, 3 << 20)
                assert (images == torch.arange(8 * number, 8 * number + 8, dtype=torch.uint8)[:, None]).all()
            print(len(kept))
"""


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_no_space_left_on_dev_shm(method: str, tmp_path: Path) -> None:
    """Row 1: batches of 24 MiB beside a /dev/shm of 16 MB. Row 2: also with a custom ``collate_fn``."""
    within, refusal = small_shm()
    if refusal:
        pytest.skip(refusal)
    assert said(run(LARGE_BATCHES, method, folder=tmp_path, within=within)) == ["6", "6"]


class Wide(Dataset[torch.Tensor]):
    """Rows of a quarter of a megabyte."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((1 << 16,), float(index))


def with_parts(samples: list[torch.Tensor]) -> Any:
    return {"whole": torch.stack(samples), "parts": [sample[:5000].clone() for sample in samples]}


def in_dev_shm(pid: int | str = "self") -> set[str]:
    """What a process has open or mapped there, under whatever name, deleted or not."""
    found = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except FileNotFoundError:  # the descriptor that lists the folder
            continue
    with open(f"/proc/{pid}/maps") as maps:
        found.update(line.split(None, 5)[-1].strip() for line in maps)
    return {name for name in found if name.startswith("/dev/shm")}


@pytest.mark.parametrize(
    ("method", "collate_fn"),
    [("fork", None), ("fork", with_parts), ("forkserver", None), ("forkserver", with_parts), ("spawn", None)],
)
def test_dev_shm_stays_untouched(method: str, collate_fn: Any) -> None:
    """Row 1, row 2: what no process has open or mapped there cannot fill it."""
    before = in_dev_shm()
    loader = stoker.DataLoader(
        Wide(), batch_size=2, num_workers=1 if method == "spawn" else 2, collate_fn=collate_fn,
        multiprocessing_context=method, persistent_workers=True,
    )  # fmt: skip
    with loader:
        kept: list[Any] = list(loader)
        workers: Any = loader._iterator
        for worker in workers._workers:
            assert in_dev_shm(worker.pid) <= before
        assert in_dev_shm() <= before
    assert len(kept) == 8


KEPT = """
    import os, resource, sys
    import torch
    from stoker import DataLoader

    class Rows(torch.utils.data.Dataset):
        def __init__(self, count):
            self.count = count

        def __len__(self):
            return self.count

        def __getitem__(self, index):
            return torch.full((5000,), float(index))

    class Lists(Rows):
        def __getitem__(self, index):
            return [torch.full((3,), float(index + number)) for number in range(int(sys.argv[3]))]

    def same(batch):
        return batch

    if __name__ == "__main__":
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        dataset = (Lists if sys.argv[3] != "0" else Rows)(int(sys.argv[2]))
        workers = 1 if sys.argv[1] == "spawn" else 2
        options = dict(num_workers=workers, multiprocessing_context=sys.argv[1])
        loader = DataLoader(dataset, batch_size=None, collate_fn=same, **options)
        iterator = iter(loader)
        kept = [next(iterator)]
        early = len(os.listdir("/proc/self/fd"))
        while len(kept) < len(loader):
            kept.append(next(iterator))
        assert len(os.listdir("/proc/self/fd")) <= early
        for index, batch in enumerate(kept):
            if isinstance(batch, list):
                assert [float(tensor[-1]) for tensor in batch] == list(range(index, index + len(batch)))
            else:
                assert batch[0] == batch[-1] == index
        print(len(kept))
"""


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_too_many_open_files_in_a_worker(method: str, tmp_path: Path) -> None:
    """Row 9: a batch of more tensors than there may be descriptors."""
    assert said(run(KEPT, method, "6", "400", folder=tmp_path)) == ["6"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_kept_batches_pin_no_descriptors(method: str, tmp_path: Path) -> None:
    """Row 10: 2000 batches are kept where 256 descriptors are allowed."""
    assert said(run(KEPT, method, "2000", "0", folder=tmp_path)) == ["2000"]


def test_kept_lists_of_tensors_pin_no_descriptors(tmp_path: Path) -> None:
    """Row 10: the same where every batch is a list of 100 tensors."""
    assert said(run(KEPT, "fork", "2000", "100", folder=tmp_path)) == ["2000"]


class Small(Dataset[Any]):
    """Rows that are one small tensor, or a list of ``tensors`` of them."""

    def __init__(self, count: int, tensors: int) -> None:
        self.count = count
        self.tensors = tensors

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if not self.tensors:
            return torch.full((4500,) if index % 70 == 0 else (2,), index)
        return [torch.full((2,), index) for _ in range(self.tensors)]


def mappings() -> int:
    with open("/proc/self/maps") as maps:
        return sum(1 for _ in maps)


@pytest.mark.parametrize(
    ("count", "tensors", "most"), [(7_000, 0, 200), (700, 100, 2000)], ids=["batches", "lists"]
)
def test_kept_tensors_are_no_mappings(count: int, tensors: int, most: int) -> None:
    """Row 30: 70 000 kept tensors, more than a process may have mappings. Or 7 000 batches, a hundred of them larger."""
    loader = stoker.DataLoader(
        Small(count, tensors), batch_size=None, num_workers=1, multiprocessing_context="fork"
    )
    before = mappings()
    kept: list[Any] = list(loader)
    grown = mappings() - before
    assert len(kept) == count
    assert all(int(batch[0][-1] if tensors else batch[-1]) == index for index, batch in enumerate(kept))
    assert grown < most
