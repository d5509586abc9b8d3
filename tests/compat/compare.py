"""How the suite runs two loaders and decides that they did the same.

`observe` drives one loader class over a fresh set of arguments and writes down everything a training script
could notice: the batches in their order, the error that ended the epoch, the length, the warnings, the state
of torch's global generator. `assert_same_run` does it for torch and for stoker and compares. Everything here
runs in the test's own thread.
"""

from __future__ import annotations

import dataclasses
import random
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.utils.data

import stoker

Arguments = dict[str, Any]

# Any: the suite hands both of them wrong types, private names and arguments only one of them has.
TorchLoader: Any = torch.utils.data.DataLoader
StokerLoader: Any = stoker.DataLoader

BOTH: list[Any] = [TorchLoader, StokerLoader]

# Advice about the machine, not about the data (it depends on free CPUs and the Python version), and what
# torch's C++ side says once in the life of a process, whoever comes first.
_MACHINE_ADVICE = re.compile(r"This DataLoader will create|use of fork\(\) may lead|Triggered internally")


@dataclass
class Observation:
    """What one loader did."""

    epochs: list[list[Any]] = field(default_factory=list)
    error: BaseException | None = None
    length: int | str = "never asked"
    warned: list[tuple[str, str]] = field(default_factory=list)
    generator_state: torch.Tensor | None = None
    iterable: bool = False


def seed_everything(seed: int) -> None:
    """Put the three global generators where both loaders must find them."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def without_addresses(text: str) -> str:
    """Strip object addresses: they differ between any two runs."""
    return re.sub(r"0x[0-9a-f]+", "0x", text)


def observe(
    loader_class: Any, build: Callable[[], Arguments], *, epochs: int = 1, seed: int = 7, **extra: Any
) -> Observation:
    """Run `loader_class(**build(), **extra)` for some epochs; an Exception ends the run, written down."""
    seen = Observation()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        seed_everything(seed)
        try:
            arguments = build()
            seen.iterable = isinstance(arguments["dataset"], torch.utils.data.IterableDataset)
            loader = loader_class(**arguments, **extra)
            seen.length = length_of(loader)
            for _ in range(epochs):
                seen.epochs.append([])
                seen.epochs[-1].extend(loader)
        except Exception as error:
            seen.error = error
        seen.generator_state = torch.get_rng_state()
    seen.warned = [
        (entry.category.__name__, without_addresses(str(entry.message)))
        for entry in warned
        if not _MACHINE_ADVICE.search(str(entry.message))
    ]
    return seen


def length_of(loader: Any) -> int | str:
    """len(loader), or the words of the TypeError that refuses it."""
    try:
        return len(loader)
    except TypeError as error:
        return without_addresses(str(error))


def assert_same_run(
    build: Callable[[], Arguments], *, epochs: int = 1, seed: int = 7, **only_stoker: Any
) -> tuple[Observation, Observation]:
    """Both loaders over `build()`: everything noticeable is equal. Returns (torch's, stoker's)."""
    theirs = observe(TorchLoader, build, epochs=epochs, seed=seed)
    ours = observe(StokerLoader, build, epochs=epochs, seed=seed, **only_stoker)
    if ours.error is not None and theirs.error is None:
        raise AssertionError("only stoker raised") from ours.error
    assert type(ours.error) is type(theirs.error)
    assert ours.length == theirs.length
    assert_same(theirs.epochs, ours.epochs, path="epochs")
    shared = [entry for entry in ours.warned if entry in theirs.warned]
    assert shared == theirs.warned, "stoker does not warn as often or in the order torch does"
    # Only for streams do we say more than torch: that every worker repeats the data.
    added = [entry for entry in ours.warned if entry not in theirs.warned]
    assert ours.iterable or not added, f"only stoker warns: {added}"
    assert theirs.generator_state is not None
    assert ours.generator_state is not None
    assert torch.equal(theirs.generator_state, ours.generator_state), (
        "the global torch generator ends elsewhere"
    )
    return theirs, ours


def assert_same(expected: Any, actual: Any, *, path: str = "batch") -> None:
    """Equal in type, structure and value; tensors also in dtype, shape, strides, layout and requires_grad."""
    assert type(expected) is type(actual), f"{path}: {type(expected)} became {type(actual)}"
    if isinstance(expected, torch.Tensor):
        _assert_same_tensor(expected, actual, path)
    elif isinstance(expected, np.ndarray):
        assert expected.dtype == actual.dtype, path
        assert expected.shape == actual.shape, path
        np.testing.assert_array_equal(expected, actual, err_msg=path)
    elif isinstance(expected, Mapping):
        assert list(expected) == list(actual), f"{path}: keys or their order differ"
        for key in expected:
            assert_same(expected[key], actual[key], path=f"{path}[{key!r}]")
    elif isinstance(expected, Sequence) and not isinstance(expected, str | bytes | range):
        assert len(expected) == len(actual), f"{path}: {len(expected)} became {len(actual)} long"
        for place, (left, right) in enumerate(zip(expected, actual, strict=True)):
            assert_same(left, right, path=f"{path}[{place}]")
    elif dataclasses.is_dataclass(expected):
        for each in dataclasses.fields(expected):
            assert_same(getattr(expected, each.name), getattr(actual, each.name), path=f"{path}.{each.name}")
    elif isinstance(expected, float):
        assert expected == actual or (expected != expected and actual != actual), path
    else:
        assert expected == actual, f"{path}: {expected!r} became {actual!r}"


def _assert_same_tensor(expected: torch.Tensor, actual: torch.Tensor, path: str) -> None:
    assert expected.dtype == actual.dtype, f"{path}: {expected.dtype} became {actual.dtype}"
    assert expected.shape == actual.shape, f"{path}: {expected.shape} became {actual.shape}"
    assert expected.layout == actual.layout, path
    assert expected.device == actual.device, path
    assert expected.requires_grad == actual.requires_grad, path
    if expected.layout is torch.strided:
        assert expected.stride() == actual.stride(), f"{path}: {expected.stride()} became {actual.stride()}"
    else:
        expected, actual = expected.to_dense(), actual.to_dense()
    if expected.is_floating_point() or expected.is_complex():
        assert torch.allclose(expected, actual, rtol=0, atol=0, equal_nan=True), path
    else:
        assert torch.equal(expected, actual), path


def mentions_index(error: BaseException, index: int) -> bool:
    """Whether the message or a note names this dataset index (use an index no line number could equal)."""
    said = [str(error), *getattr(error, "__notes__", [])]
    return any(re.search(rf"(?<!\d){index}(?!\d)", text) for text in said)
