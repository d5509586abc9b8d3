"""Recognises plain tensors, and reads their numbers as bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def plain_tensor(tensor: torch.Tensor) -> bool:
    """Whether a tensor consists of its numbers alone: on the CPU, dense, without gradient."""
    return (
        tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not tensor.requires_grad
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor.is_nested
    )


def tensor_bytes(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return the numbers of a tensor, in order, as bytes."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
