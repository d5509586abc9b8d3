"""A loader inside a function that ``torch.compile`` made. torch leaves its own loader alone there; ours is left alone too."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

import stoker
from tests.compat.compare import BOTH

OURS = str(Path(stoker.__file__).parent)
WAYS: list[dict[str, Any]] = [
    {},
    {"num_workers": 1},
    {"num_workers": 1, "persistent_workers": True},
    {"num_workers": 1, "executor": "thread"},
]


@pytest.fixture(autouse=True)
def _compiler() -> Iterator[None]:
    yield
    torch._dynamo.reset()  # what was compiled holds loaders and their workers


def compiled(function: Any, traced: list[str]) -> Any:
    """Compiled by Dynamo alone; ``traced`` gets the files of all frames that it compiles."""

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        traced.extend(str(node.meta.get("stack_trace")) for node in graph.graph.nodes)
        return graph.forward

    return torch.compile(function, backend=backend)


def results(loader_class: Any, how: dict[str, Any], traced: list[str]) -> list[Any]:
    extra = {name: value for name, value in how.items() if loader_class is BOTH[1] or name != "executor"}
    dataset = TensorDataset(torch.arange(12.0).reshape(6, 2))
    loader = loader_class(dataset, batch_size=2, **extra)

    def over_an_epoch(loader: Any) -> Any:
        total = torch.zeros(2)
        for (rows,) in loader:
            total = total + rows.sum(0)
        return total

    def one_step(iterator: Any) -> Any:
        (rows,) = next(iterator)
        return rows * 2

    def all_at_once() -> Any:
        return torch.stack([rows.sum() for (rows,) in loader]).sum()

    def with_its_state(start: Any) -> Any:
        for step, (rows,) in enumerate(loader):
            start = start + step * rows.sum()
        if hasattr(loader, "state_dict"):
            loader.load_state_dict(loader.state_dict())
        return start * len(loader)

    def left_early(start: Any) -> Any:
        for (rows,) in loader:
            return start + rows.sum()
        return start

    def made_inside() -> Any:
        inner = loader_class(dataset, batch_size=3)
        return torch.stack([rows.sum() for (rows,) in inner])

    epoch = compiled(over_an_epoch, traced)
    found = [epoch(loader), epoch(loader), compiled(one_step, traced)(iter(loader))]
    found += [compiled(all_at_once, traced)(), compiled(with_its_state, traced)(torch.zeros(()))]
    found += [compiled(left_early, traced)(torch.ones(())), compiled(made_inside, traced)()]
    if loader_class is BOTH[1]:
        loader.close()
    return [each.tolist() for each in found]


@pytest.mark.parametrize("how", WAYS)
def test_a_loader_works_in_a_compiled_function(how: dict[str, Any]) -> None:
    traced: list[str] = []
    expected = results(BOTH[0], how, [])
    assert results(BOTH[1], how, traced) == expected
    assert traced
    assert not [trace for trace in traced if OURS in trace]


def test_marking_it_does_not_import_the_compiler() -> None:
    script = "import stoker, sys; stoker.DataLoader(range(2)); assert 'torch._dynamo' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
