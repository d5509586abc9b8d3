"""``stoker.cache`` and ``stoker.cached``: the public functions. They prove, find the identity, and open the store."""

from __future__ import annotations

import functools
import multiprocessing
import os
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from torch.utils.data import IterableDataset

from stoker._host.local_ranks import job, local_ranks
from stoker._runtime.cache import budget as budgets
from stoker._runtime.cache.dataset import CachedDataset, CacheFacts, identity_of_cut, tag_of
from stoker._runtime.cache.function import CachedFunction, FunctionFacts, unread
from stoker._runtime.cache.identity import Identity, of_dataset, of_function
from stoker._runtime.cache.proving.parts import parts_of
from stoker._runtime.cache.proving.proof import Proof, prove, refuse
from stoker._runtime.cache.split import SplitDataset
from stoker._runtime.cache.storage.attaching import StoreHandle, StorePlan
from stoker.errors import CacheRefused

_SLOT_BYTES = 512
"""A store for a function has one slot, of 8 bytes, for this much of its budget: results may be small."""


def cache(
    dataset: Any,
    budget: int | str = budgets.DEFAULT,
    *,
    before: str | None = None,
    verify: float = 0.0,
    path: str | os.PathLike[str] | None = None,
    name: str | None = None,
) -> CachedDataset:
    """Keep the samples of a map-style dataset after first use, once for all processes of this machine.

    Samples that draw random numbers are refused: some are made in two processes under two seeds first. The error says what
    draws, and which line to write instead. Batches are the same bit for bit as without the cache. Call it in the training
    process, before ``DataLoader``.

    Args:
        dataset: a map-style dataset. ``Subset`` and other datasets may stand around the result.
        budget: bytes of memory, or of the disk with ``path``: a number, or text such as ``"8GiB"``. What fits stays; the rest is
            made each time.
        before: the attribute that holds the dataset's transform. Kept is what it makes up to its first random step; the other
            steps run anew for every sample.
        verify: the share of hits that are made again and compared, such as 0.01. A difference raises ``CacheMismatch``.
        path: a folder of a local disk for samples that outlive the run. It must belong to this user alone (0700).
        name: processes that name the same cache share one store, also without a common parent.

    Raises:
        RandomSamples: samples are not the same each time.
        CacheRefused: the dataset or the budget cannot be used.
    """
    length = _length_of(dataset)
    _check(verify)
    split = None if before is None else SplitDataset(dataset, before)
    found = of_dataset(dataset)
    _require_identity(found, "dataset", path, name)
    if split is None:
        proof = prove(dataset, dataset.__getitem__, length, known=found)
    else:
        proof = prove(dataset, split.fetch, length, split.finish, found)
    if not proof.holds:
        raise refuse(dataset, proof, before=before)
    limit_bytes = budgets.of_memory(budget) if path is None else budgets.of_disk(budget, path)
    _require_room(limit_bytes, proof, dataset)
    whole = found.whole()
    steps = None if split is None else split.steps
    identity = identity_of_cut(whole, before, steps)
    plan, ranks = _plan(
        identity, length, limit_bytes, type(dataset).__name__, path, name, alone=bool(found.opaque)
    )
    facts = CacheFacts(
        length, whole, tag_of(identity), found.parts, proof.changing, before, steps, verify,
        _info(name, path, ranks, before), found.opaque,
    )  # fmt: skip
    return CachedDataset(dataset, _opened(plan), facts)


def cached(
    function: Callable[..., Any] | None = None,
    budget: int | str = budgets.DEFAULT,
    *,
    verify: float = 0.0,
    path: str | os.PathLike[str] | None = None,
    name: str | None = None,
) -> Any:
    """Keep the results of a function by its arguments: ``dataset.loader = stoker.cached(dataset.loader)``.

    For the part of a sample that is the same each time, such as reading and decoding. Files that the arguments name count with
    size and mtime. Every process makes its first results twice, under two seeds. Also a decorator, with or without arguments.

    Args:
        function: a function, method or callable object. Its arguments must be picklable.
        budget: bytes of memory, or of the disk with ``path``: a number, or text such as ``"8GiB"``.
        verify: the share of hits that are made again and compared.
        path: a folder of a local disk for results that outlive the run.
        name: processes that name the same cache share one store, also without a common parent.

    Raises:
        RandomSamples: on the call whose result is not the same each time.
        CacheRefused: the function or the budget cannot be used.
    """
    if function is None:
        return functools.partial(cached, budget=budget, verify=verify, path=path, name=name)
    if not callable(function):
        raise CacheRefused(
            f"stoker.cached needs a function, not {function!r}; for a dataset there is stoker.cache"
        )
    if isinstance(function, CachedFunction):
        raise CacheRefused(f"{function!r} is cached already")
    _check(verify)
    limit_bytes = budgets.of_memory(budget) if path is None else budgets.of_disk(budget, path)
    slots = min(1 << 24, max(1 << 12, limit_bytes // _SLOT_BYTES))
    found = of_function(function)
    _require_identity(found, "function", path, name)
    identity = found.whole()
    label = getattr(function, "__name__", type(function).__name__)
    plan, ranks = _plan(identity, slots, limit_bytes, label, path, name, alone=bool(found.opaque))
    plan = replace(plan, hashed=True)
    facts = FunctionFacts(tag_of(identity), verify, _info(name, path, ranks, None), found.parts, found.opaque)
    return CachedFunction(function, _opened(plan), facts)


def _length_of(dataset: Any) -> int:
    """Return how many samples a dataset has. Raises CacheRefused for what is no map-style dataset, or is cached already."""
    name = type(dataset).__name__
    if isinstance(dataset, IterableDataset) or not hasattr(type(dataset), "__getitem__"):
        raise CacheRefused(
            f"{name} is iterable, and stoker.cache keeps samples by their index. Cache the function that decodes a sample: "
            "decode = stoker.cached(decode)"
        )
    if isinstance(dataset, CachedDataset):
        raise CacheRefused(f"{dataset!r} is cached already")
    inner = next((path for path, part in parts_of(dataset).objects if isinstance(part, CachedDataset)), None)
    if inner is not None:
        raise CacheRefused(
            f"{inner} is cached already, and {name} around it would be kept a second time; cache one of them"
        )
    try:
        return len(dataset)
    except TypeError:
        raise CacheRefused(
            f"{name} has no len(), which stoker.cache needs to make room for an index"
        ) from None


def _check(verify: Any) -> None:
    if isinstance(verify, bool) or not isinstance(verify, int | float) or not 0.0 <= verify <= 1.0:
        raise CacheRefused(f"verify must be a share from 0 to 1, such as 0.01, not {verify!r}")


def _require_identity(found: Identity, root: str, path: Any, name: str | None) -> None:
    if found.opaque and (path is not None or name is not None):
        raise CacheRefused(unread(found, root))


def _require_room(limit_bytes: int, proof: Proof, dataset: Any) -> None:
    if proof.bytes + 256 > limit_bytes:
        raise CacheRefused(
            f"a budget of {budgets.in_words(limit_bytes)} is below one sample of {type(dataset).__name__}, which takes "
            f"{budgets.in_words(proof.bytes)}; all {len(dataset)} take about {budgets.in_words(proof.bytes * len(dataset))}"
        )


def _plan(
    identity: bytes, slots: int, limit_bytes: int, label: str, path: Any, name: str | None, *, alone: bool
) -> tuple[StorePlan, int]:
    """Return which store this is, and how many local ranks share it.

    With ``alone`` a part of the identity is a random number of this call. Ranks then have stores of their own, and divide the
    budget.
    """
    ranks, _ = local_ranks(os.environ)
    together = job(os.environ) if ranks > 1 else None
    if alone and together is not None:
        together, limit_bytes = None, limit_bytes // ranks
    if path is not None:
        folder = os.path.abspath(os.fspath(path))
        label = _safe(name) if name is not None else f"{_safe(label)}-{identity.hex()[:12]}"
        token = _token("path", folder, label)
        return StorePlan(token, slots, limit_bytes, identity, folder, label), ranks
    if name is not None:
        token = _token("name", name, identity.hex(), slots)
    elif together is not None:
        token = _token("job", together, identity.hex(), slots)
    else:
        token = _token("process", _family(), identity.hex(), slots, limit_bytes)
        ranks = 1
    return StorePlan(token, slots, limit_bytes, identity), ranks


def _family() -> str:
    """The same text in a process and the workers that it spawns: these may run the caller's module again."""
    parent = multiprocessing.parent_process()
    pid = os.getpid() if parent is None else parent.pid
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            started = stat.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        started = ""
    return f"{pid}:{started}"


def _token(*parts: object) -> str:
    return blake2b("\n".join(map(str, parts)).encode(), digest_size=12).hexdigest()


def _safe(label: str) -> str:
    return (
        "".join(each if each.isalnum() or each in "-_." else "_" for each in label).lstrip(".")[:80]
        or "cache"
    )


def _opened(plan: StorePlan) -> StoreHandle:
    handle = StoreHandle(plan)
    handle.open()
    return handle


def _info(name: str | None, path: Any, ranks: int, before: str | None) -> dict[str, Any]:
    found = None if path is None else os.path.abspath(os.fspath(path))
    return {"name": name, "path": found, "before": before, "local_ranks": ranks, "refused": None}
