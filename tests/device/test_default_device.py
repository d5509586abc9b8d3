"""A default device on an accelerator changes nothing for workers, however they start: a forked process may not even ask for it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch.utils.data import Dataset

import stoker
from stoker._runtime.protocol.default_device import default_device
from tests.fake_device import NAME, FakeDevice


class Rows(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index)])  # on the default device


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> int:
        return index


@contextmanager
def default(how: str, device: str = NAME) -> Iterator[None]:
    """The accelerator as the default device, after it was used."""
    torch.zeros(1, device=device)
    if how == "with":
        with torch.device(device):
            yield
        return
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None)


def run(**options: object) -> list[torch.Tensor]:
    generator = torch.Generator(device="cpu").manual_seed(4)
    with stoker.DataLoader(Rows(), 3, shuffle=True, generator=generator, **options) as loader:  # type: ignore[arg-type]
        return [batch.cpu() for batch in loader]


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("method", "how", "device"),
    [
        *itertools.product(["fork", None], ["set", "with"], [None, NAME]),
        ("forkserver", "set", None),
        ("spawn", "with", NAME),
    ],
)
def test_workers_make_samples_on_the_cpu(method: str | None, how: str, device: str | None) -> None:
    expected = run()
    with default(how):
        found = run(num_workers=2, multiprocessing_context=method, device=device)
    assert [batch.tolist() for batch in found] == [batch.tolist() for batch in expected]


@pytest.mark.usefixtures("fake")
def test_workers_that_are_forked_in_two_contexts_make_samples_on_the_cpu() -> None:
    with default("set", f"{NAME}:1"), default("with"):
        found = run(num_workers=1, multiprocessing_context="fork")
    assert sorted(row for batch in found for row in batch.flatten().tolist()) == list(range(12))


@pytest.mark.parametrize("how", ["set", "with"])
def test_it_is_read_where_the_device_cannot_be_used(fake: FakeDevice, how: str) -> None:
    """In a forked child, where seeds and the order are drawn by a loader without workers."""
    with default(how):
        assert default_device() == torch.device(NAME)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                order = list(stoker.DataLoader(Numbers(), shuffle=True, collate_fn=sum))
                code = 0 if sorted(order) == list(range(9)) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert default_device() == torch.device("cpu")
