"""Proves that samples are the same each time, before they are kept: a few of them, made in two processes under two seeds.

    child 1: seed 1, worker 0 of 2, indices forwards  ─┐
                                                        ├─ equal bytes, and nothing drawn? otherwise: who draws
    child 2: seed 2, worker 1 of 2, indices backwards ─┘

Each child stops after two seconds. Nothing here changes the generators, the dataset or its open files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

from torch.utils.data._utils import worker as torch_worker

from stoker._runtime.cache.identity import Identity, of_dataset
from stoker._runtime.cache.proving.apart import ChildLost, run_apart
from stoker._runtime.cache.proving.draws import DrawWatch, reseed
from stoker._runtime.cache.proving.parts import parts_of, who_draws
from stoker._runtime.cache.storage import sample_codec
from stoker.errors import CacheRefused, RandomSamples, UnsendableError

_SAMPLES = 8
_WHOLE_SAMPLES = 3
_ENOUGH_S = 2.0
_SEEDS = (0x5EED0001, 0x5EED0002)


class Proof(NamedTuple):
    """What the proof found. ``draws`` names what draws; ``differing`` is an index whose sample differs, with no draw seen.

    ``changing`` are attributes of the dataset that fetching changes. ``bytes`` are those of the largest sample, 0 if none could
    be kept.
    """

    draws: list[str]
    differing: int | None
    changing: frozenset[str]
    bytes: int

    @property
    def holds(self) -> bool:
        """Whether the samples may be kept."""
        return not self.draws and self.differing is None


class _FetchedSample(NamedTuple):
    row: int
    digest: bytes
    nbytes: int
    drawn: list[str]


class _RefusedFetch(NamedTuple):
    text: str


def prove(
    dataset: Any,
    fetch: Callable[[int], Any],
    length: int,
    finish: Callable[..., Any] | None = None,
    known: Identity | None = None,
) -> Proof:
    """Fetch a few samples in two children and compare. Raises CacheRefused if a child dies or hangs.

    With ``finish``, what ``fetch`` returns is a part of a sample. The first child also compares a few samples in two parts with
    whole ones, under one seed. ``known`` is the dataset's identity, which saves the children to read long data.
    """
    step = max(1, length // _SAMPLES)
    indices = sorted({*range(0, length, step), length - 1})[: _SAMPLES + 1] if length else []
    try:
        one, two = run_apart(
            _fetching(dataset, fetch, indices, 0, finish, known),
            _fetching(dataset, fetch, indices[::-1], 1, None, known),
        )
    except ChildLost as lost:
        raise CacheRefused(
            f"stoker could not prove that the samples of {type(dataset).__name__} are the same each time: {lost}. It makes a few "
            "in two forked processes; a dataset that needs a device, a thread or a lock of this process cannot do that"
        ) from None
    for each in (*one, *two):
        if isinstance(each, _RefusedFetch):
            raise CacheRefused(each.text)
    first = {each.row: each for each in one if isinstance(each, _FetchedSample)}
    second = {each.row: each for each in two if isinstance(each, _FetchedSample)}
    draws = [each for said in (one, two) for each in said if isinstance(each, str)]
    differing = next(
        (index for index, each in first.items() if index in second and second[index].digest != each.digest),
        None,
    )
    changing = frozenset().union(
        *(each for said in (one, two) for each in said if isinstance(each, frozenset))
    )
    return Proof(
        list(dict.fromkeys(draws)),
        differing,
        changing,
        max([each.nbytes for each in first.values()], default=0),
    )


def _fetching(
    dataset: Any,
    fetch: Callable[[int], Any],
    indices: Sequence[int],
    child: int,
    finish: Callable[..., Any] | None,
    known: Identity | None,
) -> Callable[[Callable[[Any], None]], None]:
    def work(say: Callable[[Any], None]) -> None:
        parts = parts_of(dataset)
        reseed(_SEEDS[child], parts.generators)
        torch_worker._worker_info = torch_worker.WorkerInfo(
            id=child, num_workers=2, seed=_SEEDS[child], dataset=dataset
        )
        before = of_dataset(dataset, known)
        watch = DrawWatch(parts.generators)
        until = time.monotonic() + _ENOUGH_S
        for number, index in enumerate(indices):
            mark = watch.mark()
            try:
                digest, nbytes = digest_of(fetch, index)
            except CacheRefused as error:
                say(_RefusedFetch(str(error)))
                return
            drawn = watch.drawn(mark)
            if drawn:
                found = who_draws(partial(digest_of, fetch, index), parts)
                for name in found or [f"dataset ({type(dataset).__name__})"]:
                    say(name)
                say(_FetchedSample(index, digest, nbytes, drawn))
                return
            say(_FetchedSample(index, digest, nbytes, drawn))
            if number and time.monotonic() > until:
                break
        for index in indices[:_WHOLE_SAMPLES] if finish is not None else ():
            if not _is_cut_well(dataset, fetch, finish, index):
                say(
                    _RefusedFetch(
                        f"sample {index} of {type(dataset).__name__} is another one when its random part runs on a kept sample. "
                        "Keep the decoder's output instead: dataset.loader = stoker.cached(dataset.loader)"
                    )
                )
        say(frozenset(of_dataset(dataset, known=before).differing(before)))

    return work


def _is_cut_well(dataset: Any, fetch: Callable[[int], Any], finish: Any, index: int) -> bool:
    """Whether a sample that is made in two parts equals one that is made whole, under the same seed."""
    generators = parts_of(dataset).generators
    reseed(index, generators)
    whole, _ = digest_of(dataset.__getitem__, index)
    reseed(index, generators)
    parts, _ = digest_of(lambda place: finish(*fetch(place)), index)
    return whole == parts


def digest_of(fetch: Callable[[int], Any], index: int) -> tuple[bytes, int]:
    """Return the digest of a sample and the bytes that it takes. Of one that raises or cannot be kept, its type counts."""
    try:
        sample = fetch(index)
    except CacheRefused:
        raise
    except Exception as error:
        return f"raised {type(error).__name__}".encode(), 0
    try:
        encoded = sample_codec.encode(sample)
    except UnsendableError as error:
        return f"unkept {error}".encode(), 0
    total = blake2b(digest_size=16)
    nbytes = len(encoded.root)
    for each in encoded.data:
        total.update(each)
        nbytes += len(each)
    total.update(encoded.root)
    return total.digest(), nbytes


def refuse(dataset: Any, proof: Proof, *, before: str | None) -> RandomSamples:
    """Return the error for samples that are not the same each time, with the line to write instead."""
    name = type(dataset).__name__
    if proof.draws:
        why = f"{' and '.join(proof.draws)} draws random numbers"
        why += ", so the cache would freeze one of its results for ever"
    else:
        why = f"sample {proof.differing} differs between two processes, although no known generator was drawn from"
    if before is not None:
        text = f"what comes before {before!r} in {name} is random: {why}."
        return RandomSamples(
            f"{text}\nCache what is the same each time:\n{_decoder_line(dataset)}", proof.draws
        )
    lines = _decoder_line(dataset)
    found = next(
        (each for each in ("transform", "transforms") if callable(getattr(dataset, each, None))), None
    )
    if found is not None and any(f"dataset.{found}" in each for each in proof.draws):
        lines = f'    dataset = stoker.cache(dataset, before="{found}")'
    text = f"the samples of {name} are random: {why}."
    return RandomSamples(
        f"{text}\nCache what is the same each time, and the rest runs anew:\n{lines}", proof.draws
    )


def _decoder_line(dataset: Any) -> str:
    for name in ("loader", "decoder", "decode", "load", "read", "reader", "_load_image"):
        if callable(getattr(dataset, name, None)):
            return f"    dataset.{name} = stoker.cached(dataset.{name})"
    return "    decode = stoker.cached(decode)      # the function that reads and decodes a file"
