"""What a page defines and never calls is looked through, too."""

from __future__ import annotations

from typing import Any

import pytest
import torch.utils.data

import stoker
from tests.docs.blocks import Block
from tests.docs.unreached import wrong

NAMES: dict[str, Any] = {"stoker": stoker, "torch": torch, "DataLoader": stoker.DataLoader, "dataset": [1]}


def found(source: str) -> list[str]:
    return wrong([Block("page.md", 10, "python", source, "")], NAMES)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return nobody", "nobody comes from nowhere"),
        ("return stoker.shared(self)", "stoker has no shared"),
        ("torch.utils.data.get_worker()", "torch.utils.data has no get_worker"),
        ("return DataLoader(dataset, prefetch=2)", "DataLoader takes no prefetch="),
        ("return stoker.generator('numpy', 3)", "stoker.generator takes 1 arguments, not 2"),
    ],
)
def test_a_body_that_cannot_be_right_is_found(body: str, said: str) -> None:
    assert found(f"class Never:\n    def called(self):\n        {body}\n") == [f"page.md:12: {said}"]


def test_what_may_be_right_is_left_alone() -> None:
    assert (
        found(
            "import os as system\n"
            "def called(torch, *given, **more):\n"
            "    with open(system.devnull) as file, DataLoader(dataset, num_workers=2, **more) as loader:\n"
            "        torch.anything(*given, loader.anything, [x for x in file])\n"
            "    try:\n"
            "        stoker.share(*given)\n"
            "    except stoker.errors.CannotShare as error:\n"
            "        print(error)\n"
        )
        == []
    )
