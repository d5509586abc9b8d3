"""Wraps a dataset with samples that raise, so that it can be measured: a neighbour replaces such a sample."""

from __future__ import annotations

from typing import Any

_NEIGHBOURS = 16


class LenientDataset:
    """Wraps a dataset with indices. Other attributes are the dataset's own."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: Any) -> Any:
        try:
            return self._dataset[index]
        except Exception:
            if not isinstance(index, int):
                raise
            length = len(self._dataset)
            for near in range(1, _NEIGHBOURS):
                try:
                    return self._dataset[(index + near) % length]
                except Exception:
                    continue
            raise

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_dataset":  # during unpickling the dataset is not set yet
            raise AttributeError(name)
        return getattr(self._dataset, name)


class LenientBatchDataset(LenientDataset):
    """Wraps a dataset that makes all samples of a batch at once, as long as none raises."""

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        try:
            found: list[Any] = self._dataset.__getitems__(indices)
        except Exception:
            return [self[index] for index in indices]
        return found


def lenient(dataset: Any) -> LenientDataset:
    """Wrap a dataset."""
    return (LenientBatchDataset if hasattr(dataset, "__getitems__") else LenientDataset)(dataset)
