"""Tracks where a loader is in its data: what ``state_dict`` returns, and where the next ``iter()`` starts.

    load_state_dict() ──► loaded ──iter()──► under way ──the end──► nothing yet, with another epoch behind it

Taking a state draws no random number and settles nothing: frameworks take one when they wrap a loader, before its sampler has its
generator and before the model is initialised. Of several iterators of one loader the one that began last counts.
"""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass
from typing import Any

import torch

from stoker._receipt.loader_receipts import LoaderReceipts
from stoker._runtime.checkpoint import rng_snapshot, sampler_position, state_counts, state_format
from stoker._runtime.checkpoint.epoch_start import (
    EpochStart,
    facts_of,
    is_iterable,
    seed_after,
    stream_count,
    stream_differences,
)
from stoker._runtime.checkpoint.progress import Progress
from stoker._runtime.checkpoint.rng_snapshot import TORCH, RngSnapshot
from stoker._runtime.checkpoint.state_format import SavedState, StreamState
from stoker._runtime.protocol.worker_spec import is_stateful


@dataclass(frozen=True, slots=True)
class _SettledEpoch:
    """The next epoch, which was drawn before it began: generators as they stood, and its seed."""

    snapshot: RngSnapshot
    seed: int


class LoaderState:
    """Owner: a loader. Used on the thread that iterates it."""

    def __init__(self) -> None:
        self._loaded: SavedState | None = None
        self._settled: _SettledEpoch | None = None
        self._epoch_start: EpochStart | None = None
        self._progress: Progress | None = None
        self._ahead: EpochStart | None = None
        self.receipts = LoaderReceipts()
        self._looked = False
        """Whether it is known that the samplers hold no generators that states leave out, or the user was told."""

    def __copy__(self) -> LoaderState:
        """For a copy of the loader, which has iterated nothing yet."""
        other = LoaderState()
        other._loaded = self._loaded
        return other

    def state(self, loader: Any, read_ahead: int = 0) -> dict[str, Any]:
        """A fresh dict, in time that does not depend on how far the loader is. Starts no worker, reads no data.

        ``read_ahead``: how many of the batches that were handed over, 0 or 1, do not count.
        """
        if self._loaded is not None:
            return state_format.dump(copy.deepcopy(self._loaded))
        if not self._looked:
            self._looked = True
            _tell_left_out(loader)
        if self._epoch_start is None or self._progress is None or self._progress.finished:
            return state_format.dump(self._between_epochs(loader))
        receipt = self.receipts.state_text(self._progress.receipt_writer, before_last=bool(read_ahead))
        progress = self._progress.before_last() if read_ahead else self._progress
        return state_format.dump(_under_way(loader, self._epoch_start, progress, receipt))

    def load(self, loader: Any, state: Any) -> None:
        """The next ``iter()`` goes on from this state. Raises ValueError, and changes nothing, when it cannot."""
        if isinstance(state, dict) and not state:
            return
        saved = copy.deepcopy(state_format.parse(state))
        found = state_format.differences(saved, facts_of(loader)) + stream_differences(saved, loader)
        if found:
            raise ValueError("this state does not fit this loader: " + "; and ".join(found))
        given = rng_snapshot.generators_of(loader)
        try:
            rng_snapshot.decode(saved.generators, given)
            if "pulled" in saved.generators:
                rng_snapshot.read_pulled(saved.generators["pulled"], given)
        except rng_snapshot.OtherGenerators:
            if not saved.finished:
                raise
        if not saved.finished:
            sampler_position.check(loader._index_sampler, saved)
        sampler_position.announce(loader._index_sampler, saved)
        self._loaded, self._settled = saved, None

    def open(self, loader: Any, *, ahead: bool = False) -> EpochStart:
        """How the epoch that begins now is to be opened. ``ahead``: it is opened before anybody asked for it."""
        given = rng_snapshot.generators_of(loader)
        follows = self._follows(loader)
        if ahead:
            self._ahead = EpochStart(given, rng_snapshot.capture(given, _draws(loader)), follows=follows)
            return self._ahead
        if self._loaded is not None:
            return self._open_loaded(loader, given, self._loaded)
        settled = self._settled
        if settled is None or len(settled.snapshot.given) != len(given):  # or drawn from other generators
            then = rng_snapshot.capture(given, rng_snapshot.draws_from(loader._index_sampler))
            return EpochStart(given, then, follows=follows)
        return EpochStart(given, settled.snapshot, replays=True, follows=follows)

    def _follows(self, loader: Any) -> int | None:
        """The base seed of the epoch before, if the next one draws none of its own."""
        if self._epoch_start is None or not loader._keeps_seed():
            return None
        return self._epoch_start.base_seed

    def begun(self, epoch_start: EpochStart, progress: Progress, *, same_workers: bool = False) -> None:
        """An iteration is under way: from here on its progress counts. ``same_workers``: it runs on those of the one before."""
        if same_workers and epoch_start.saved is None and self._progress is not None:
            progress.carry(self._progress)
        self._loaded = self._settled = None
        self._epoch_start, self._progress = epoch_start, progress
        saved = epoch_start.saved
        if progress.receipt_writer is not None:
            text = None if saved is None else saved.receipt
            rest = epoch_start.rest_of is not None
            self.receipts.begin(progress.receipt_writer, loaded=saved is not None, text=text, rest=rest)
        if self._ahead is epoch_start:
            self._ahead = None

    @property
    def pending(self) -> bool:
        """Whether it is settled where the next epoch begins."""
        return self._loaded is not None or self._settled is not None

    @property
    def takes_up_streams(self) -> bool:
        """Whether a state was loaded that workers have to be started with."""
        return self._loaded is not None and self._loaded.streams is not None

    def take_back(self) -> None:
        """The epoch that was opened ahead was not wanted as it was: the next one draws the same again."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and self._loaded is None:
            self._settled = _SettledEpoch(ahead.then, ahead.base_seed)

    @staticmethod
    def _open_loaded(loader: Any, given: list[torch.Generator], saved: SavedState) -> EpochStart:
        try:
            then = rng_snapshot.decode(saved.generators, given)
        except rng_snapshot.OtherGenerators:
            if not saved.finished:
                raise
            # A whole epoch that is drawn from other generators: it takes nothing from the one before.
            return EpochStart(
                given, rng_snapshot.capture(given, rng_snapshot.draws_from(loader._index_sampler)), saved
            )
        begun = saved.batches > 0 or saved.ahead
        unmoved = frozenset() if begun else rng_snapshot.unmoved(then, seeded=loader.generator is None)
        return EpochStart(given, then, saved, replays=True, unmoved=unmoved)

    def _between_epochs(self, loader: Any) -> SavedState:
        """The next epoch, as it would begin now."""
        ahead = self._ahead
        if ahead is not None:
            seed, generators = ahead.base_seed, ahead.generators()
        else:
            following = self._settled or _following(loader)
            seed, generators = following.seed, rng_snapshot.encode(following.snapshot)
            follows = self._follows(loader)
            if follows is not None:
                seed, generators["pulled"] = seed_after(follows), generators.copy()
        epoch_start = self._epoch_start
        epoch = sampler_position.epoch_of(loader._index_sampler)
        if sampler_position.elastic_part(loader._index_sampler) is not None:
            if ahead is not None:
                epoch = ahead.source.epoch
            elif epoch_start is not None and epoch_start.source.epoch is not None:
                epoch = epoch_start.source.epoch + 1
        streams = None
        if is_iterable(loader):
            before = self._progress.streams if self._progress is not None else None
            streams = tuple(
                StreamState(dataset=each.dataset)
                for each in before or (StreamState(),) * stream_count(loader)
            )
        return SavedState(
            facts=facts_of(loader),
            base_seed=seed,
            pipe_seed=None,
            batches=0,
            samples=0,
            ahead=(),
            finished=True,
            generators=generators,
            sampler_epoch=epoch,
            sampler_state=None,
            sampler_at=0,
            dataset_state=_dataset_state(loader),
            streams=streams,
            turn=0,
            receipt=self.receipts.state_text(None),
            resized_at=(0, 0),
            not_in_receipt=0,
        )


def _under_way(loader: Any, epoch_start: EpochStart, progress: Progress, receipt: str) -> SavedState:
    """In the middle of an epoch."""
    batches, samples = progress.batches, progress.samples
    sampler_state, sampler_at = epoch_start.source.state(batches, samples, progress.snapshot)
    facts = epoch_start.facts(loader)
    saved = SavedState(
        facts=facts,
        base_seed=epoch_start.base_seed,
        pipe_seed=epoch_start.pipe_seed,
        batches=batches,
        samples=samples,
        ahead=progress.ahead,
        finished=False,
        generators=epoch_start.generators(),
        sampler_epoch=epoch_start.source.epoch,
        sampler_state=sampler_state,
        sampler_at=sampler_at,
        dataset_state=_dataset_state(loader),
        streams=progress.streams,
        turn=progress.turn,
        receipt=receipt,
        resized_at=epoch_start.resized_at(facts.batch_size),
    )
    return state_counts.vouched(saved)


def _draws(loader: Any) -> list[str]:
    """The global generators that an epoch is drawn from, its base seed included."""
    world = list(rng_snapshot.draws_from(loader._index_sampler))
    if loader.generator is None and TORCH not in world:
        world.append(TORCH)
    return world


def _following(loader: Any) -> _SettledEpoch:
    """The epoch that ``iter()`` would begin now. Its seed is drawn from a copy of the generator."""
    source = torch.default_generator if loader.generator is None else loader.generator
    copied = torch.Generator(source.device)
    copied.set_state(source.get_state())
    seed = int(torch.empty((), dtype=torch.int64, device="cpu").random_(generator=copied).item())
    return _SettledEpoch(rng_snapshot.capture(rng_snapshot.generators_of(loader), _draws(loader)), seed)


def _dataset_state(loader: Any) -> Any:
    """Return the state of a map-style dataset, as this process has it."""
    if is_iterable(loader) or not is_stateful(loader.dataset):
        return None
    return copy.deepcopy(loader.dataset.state_dict())


def _tell_left_out(loader: Any) -> None:
    found = rng_snapshot.left_out(loader)
    if found is not None:
        logging.getLogger("stoker").warning(
            "%s is a random generator that state_dict() of this loader does not save, so a run that resumes in another process may "
            "see another order. It saves a torch.Generator in an attribute called generator, and the sampler's own state_dict()",
            found,
        )
