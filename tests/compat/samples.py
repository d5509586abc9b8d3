"""Datasets and collate functions of the suite, at module level so that every start method can send them."""

from __future__ import annotations

import random
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

# Far larger than any line number or count a message could hold by chance.
FAR = 90317

Pair = namedtuple("Pair", ["image", "label"])


class Squares(Dataset[Any]):
    """(tensor, int) rows of a fixed length."""

    def __init__(self, length: int = 22) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return torch.full((2, 3), float(index)), index * index


class Endless(Dataset[Any]):
    """Any index is good; `len` is beyond FAR. For error tests that name an index."""

    def __len__(self) -> int:
        return FAR * 2

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([index, -index])


class Shaped(Dataset[Any]):
    """One kind of row structure per name, so that one class covers the matrix."""

    KINDS = (
        "tensor", "scalar", "numpy", "numpy_scalar", "string", "bytes", "dict", "nested", "namedtuple",
        "list", "bool", "float16", "complex", "empty", "uint8_image", "mixed_numbers", "ordered", "tuple",
    )  # fmt: skip

    def __init__(self, kind: str, length: int = 11) -> None:
        self.kind = kind
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return getattr(self, "_" + self.kind)(index)

    def _tensor(self, index: int) -> Any:
        return torch.arange(6, dtype=torch.float32).reshape(2, 3) + index

    def _scalar(self, index: int) -> Any:
        return index

    def _numpy(self, index: int) -> Any:
        return np.arange(5, dtype=np.int16) * index

    def _numpy_scalar(self, index: int) -> Any:
        return np.float32(index) / 3

    def _string(self, index: int) -> Any:
        return f"row {index}"

    def _bytes(self, index: int) -> Any:
        return bytes([index, 0, 255])

    def _dict(self, index: int) -> Any:
        return {"z": torch.tensor(index), "a": f"{index}", 3: 1.5 * index}

    def _nested(self, index: int) -> Any:
        return {
            "image": torch.full((3, 4), index, dtype=torch.uint8),
            "meta": {"boxes": np.full((2, 4), index, dtype=np.float64), "names": [f"n{index}", "same"]},
            "pair": (index, [torch.tensor([index]), float(index)]),
        }

    def _namedtuple(self, index: int) -> Any:
        return Pair(torch.full((2,), index), index)

    def _list(self, index: int) -> Any:
        return [torch.tensor(index), index]

    def _bool(self, index: int) -> Any:
        return torch.tensor([index % 2 == 0, True])

    def _float16(self, index: int) -> Any:
        return torch.tensor([index], dtype=torch.bfloat16), torch.tensor(index, dtype=torch.float16)

    def _complex(self, index: int) -> Any:
        return torch.tensor([complex(index, -index)])

    def _empty(self, index: int) -> Any:
        return torch.empty(0, 4), index

    def _uint8_image(self, index: int) -> Any:
        return torch.full((3, 8, 8), index, dtype=torch.uint8).to(memory_format=torch.contiguous_format)

    def _mixed_numbers(self, index: int) -> Any:
        return index if index % 2 else index + 0.5

    def _ordered(self, index: int) -> Any:
        return OrderedDict(b=index, a=torch.tensor([index]))

    def _tuple(self, index: int) -> Any:
        return (index,)


class Bulk(Dataset[Any]):
    """A column store that fetches a whole batch at once, in the style of Hugging Face's datasets."""

    def __init__(self, length: int = 17) -> None:
        self.columns: dict[str, list[Any]] = {
            "id": list(range(length)),
            "text": [f"t{i}" for i in range(length)],
        }

    def __len__(self) -> int:
        return len(self.columns["id"])

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("__getitems__ must be preferred when a batch is wanted")

    def __getitems__(self, indices: list[int]) -> Any:
        return [{name: column[i] for name, column in self.columns.items()} for i in indices]


class Keyed(Dataset[Any]):
    """Indexed by arbitrary objects."""

    def __init__(self) -> None:
        self.rows = {"a": 1, ("b", 2): 2, 3.5: 3, None: 4}

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> Any:
        return self.rows[key]


class Augmented(Dataset[Any]):
    """Draws from all three global generators, a different number of times for each row."""

    def __init__(self, length: int = 40) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        drawn = [random.random() for _ in range(index % 3 + 1)]
        return {
            "index": index,
            "python": drawn[-1],
            "numpy": np.random.rand(2),
            "torch": torch.rand(3),
            "normal": torch.randn(()),
        }


class Counting(IterableDataset[Any]):
    """Every worker repeats the whole stream."""

    def __init__(self, length: int = 10) -> None:
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        for value in range(self.length):
            yield torch.tensor([value]), value


class Sharded(IterableDataset[Any]):
    """Each worker takes its own contiguous, unequal share."""

    def __init__(self, length: int = 23) -> None:
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info is not None else (0, 1)
        # Unequal on purpose: worker 0 ends first, and the round-robin order of the rest must be torch's.
        cuts = [self.length * part * part // (workers * workers) for part in range(workers + 1)]
        yield from range(cuts[worker], cuts[worker + 1])


class Sized(Counting):
    """Reports a length of its own, right or wrong."""

    def __init__(self, length: int, reported: int) -> None:
        super().__init__(length)
        self.reported = reported

    def __len__(self) -> int:
        return self.reported


class RandomStream(IterableDataset[Any]):
    """Draws from the worker's generators for every row."""

    def __iter__(self) -> Iterator[Any]:
        for _ in range(6):
            yield torch.rand(2), np.random.rand(), random.random()


class CustomError(Exception):
    """Takes other arguments than it hands to Exception, and carries attributes."""

    def __init__(self, code: int, *, path: str) -> None:
        super().__init__(f"code {code}")
        self.code = code
        self.path = path

    def __reduce__(self) -> Any:
        return _rebuild_custom_error, (self.code, self.path)


def _rebuild_custom_error(code: int, path: str) -> CustomError:
    return CustomError(code, path=path)


@dataclass
class Row:
    """What a collate function of a user might return."""

    values: torch.Tensor
    name: str


def keep_rows(rows: list[Any]) -> list[Any]:
    """A collate function that collates nothing."""
    return rows
