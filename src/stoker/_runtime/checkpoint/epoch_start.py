"""Starts one epoch, from its first batch or from a saved state, with the right random generators."""

from __future__ import annotations

import copy
import logging
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import BatchSampler
from torch.utils.data import dataloader as torch_loader

from stoker._runtime.checkpoint import rng_snapshot, sampler_position
from stoker._runtime.checkpoint.progress import Progress
from stoker._runtime.checkpoint.rng_snapshot import TORCH, RngSnapshot
from stoker._runtime.checkpoint.sampler_position import IndexSource
from stoker._runtime.checkpoint.state_format import LoaderFacts, SavedState, StreamState
from stoker._runtime.plan.planner import SPARES, PlanStart
from stoker._runtime.protocol.worker_spec import Resume, is_stateful
from stoker._runtime.scheduler.row_ranges import mix
from stoker._runtime.worker.rng.seeding import generators_kept


class EpochStart:
    """Owner: the iterator that is being made, then the loader's ``LoaderState``: it must not know the loader.

    ``then`` is how the generators stand before the samplers are opened, or stood: ``replays`` asks that they be put there for it,
    and global ones back afterwards, but for those in ``unmoved``. ``saved`` is the state that was loaded, if any. ``follows`` is
    the base seed of the epoch before, if this one draws none of its own: as in torch, with persistent workers and ``rng="torch"``.
    """

    def __init__(
        self,
        given: list[torch.Generator],
        then: RngSnapshot,
        saved: SavedState | None = None,
        *,
        replays: bool = False,
        unmoved: frozenset[str] = frozenset(),
        follows: int | None = None,
    ) -> None:
        self.saved = saved
        self.follows = follows
        self.rest_of: SavedState | None = saved if saved is not None and not saved.finished else None
        """The state of which this epoch is the rest."""
        self.source: IndexSource
        self.base_seed = 0
        self.pipe_seed: int | None = None
        self._given = given
        self.then = then
        self._replays = replays
        self._unmoved = unmoved
        self._pulled: RngSnapshot | None = None
        self._texts: dict[str, Any] | None = None if self.rest_of is None else self.rest_of.generators.copy()
        self._facts: LoaderFacts | None = None

    @contextmanager
    def generators_in_place(self) -> Iterator[None]:
        """While samplers are opened and brought to their place. The global ones are afterwards as they were found.

        Those that nobody moved since the state was taken, before this epoch began, are drawn from like at any other ``iter()``:
        the epochs after it are then those of the run that was saved.
        """
        if not self._replays:
            yield
            return
        found = torch.default_generator.get_state()  # the base seed is drawn from it, whoever draws else
        try:
            with rng_snapshot.replayed(self.then, self._given, but_for=self._unmoved):
                yield
        finally:
            if TORCH not in self._unmoved:
                torch.default_generator.set_state(found)

    def prepare(self, loader: Any) -> None:
        """Before the samplers are opened: what was saved of the user's parts goes back to them."""
        saved = self.saved
        if saved is None:
            return
        sampler_position.prepare(loader._index_sampler, saved)
        if not saved.finished:
            _go_to_epoch(loader.dataset, saved.streams or ())
        if saved.dataset_state is not None and is_stateful(loader.dataset):
            with generators_kept():  # it may put back what it drew from in a worker
                loader.dataset.load_state_dict(copy.deepcopy(saved.dataset_state))

    def take_over(self, iterator: Any, loader: Any) -> None:
        """torch has opened the samplers and drawn the seeds for ``iterator``: bring them to their place.

        The iterator then takes ``base_seed`` and ``pipe_seed`` from here.
        """
        rest, sampler = self.rest_of, loader._index_sampler
        noted = self.saved is not None and self._replays and "pulled" in self.saved.generators
        self.base_seed, self.pipe_seed = iterator._base_seed, iterator._shared_seed
        if self.follows is not None:
            self.base_seed = seed_after(self.follows)
        elif self.saved is not None and noted:
            self.base_seed = self.saved.base_seed
        if rest is not None:
            self.base_seed, self.pipe_seed = rest.base_seed, rest.pipe_seed
            if rest.streams is not None and len(rest.streams) != stream_count(loader):
                # Other streams than those that began the epoch: they must not draw the numbers of its beginning again.
                self.base_seed = mix(rest.base_seed, rest.batches) >> 1
        self.source = IndexSource(
            sampler,
            iterator._sampler_iter,
            every=snapshot_every(loader),
            plain=is_iterable(loader) or sampler_position.is_plain(sampler),
            batched=iterator._auto_collation,
        )
        if is_iterable(loader):
            return
        if self.saved is not None and noted:
            rng_snapshot.put_pulled(self.saved.generators["pulled"], self._given)
        if rest is not None:
            self.source.seek(rest, SPARES if loader.on_bad_sample == "replace" else 0)
        if not self.then.world and not self._given:
            return
        if self.follows is not None:
            # Whoever takes this epoch up draws a base seed, and this one did not.
            self._pulled = rng_snapshot.capture(self._given, [name for name, _ in self.then.world])
        if self._replays:
            self.source.begin()
        elif iterator._num_workers == 0:
            self._watch_first_pull()

    def begin(self, loader: Any, progress: Progress) -> PlanStart:
        """For the planner."""
        rest = self.rest_of
        if rest is None:
            return PlanStart()
        if is_iterable(loader):
            return PlanStart(rest.batches)
        samples = 0 if self.source.restarts else rest.samples
        return PlanStart(rest.batches, samples, frozenset(rest.ahead), progress.passed, self.source.before)

    def progress(self, loader: Any, *, carries: bool) -> Progress:
        """How far the epoch is at its beginning. ``carries``: streams keep their datasets from one epoch to the next."""
        rest = self.rest_of
        in_order = loader.in_order or loader.num_workers == 0
        if is_iterable(loader):
            return self._stream_progress(loader, in_order, carries)
        if rest is None:
            return Progress(in_order=in_order, batched=loader._auto_collation)
        samples = 0 if self.source.restarts else rest.samples
        snapshot = self.source.kept(rest)
        return Progress(
            in_order=in_order,
            batched=loader._auto_collation,
            batches=rest.batches,
            samples=samples,
            ahead=rest.ahead,
            snapshot=snapshot,
        )

    def _stream_progress(self, loader: Any, in_order: bool, carries: bool) -> Progress:
        count = stream_count(loader)
        blank = (StreamState(),) * count
        saved, rest = self.saved, self.rest_of
        if rest is not None and rest.streams is not None:
            batches = rest.batches
            found = stream_differences(rest, loader)
            if found:  # num_workers was changed since the state was loaded
                raise ValueError("the state that was loaded does not fit this loader any more: " + found[0])
            if len(rest.streams) == count:
                return Progress(in_order=in_order, batches=batches, streams=rest.streams, turn=rest.turn)
            return Progress(in_order=in_order, batches=batches, streams=resharded(rest.streams, loader))
        goes_on = carries and is_stateful(loader.dataset)
        if saved is not None and saved.streams is not None and goes_on and len(saved.streams) == count:
            return Progress(in_order=in_order, streams=saved.streams, fresh=True)
        progress = Progress(in_order=in_order, streams=blank)
        if loader.num_workers == 0:
            words = _first_words(loader.dataset)
            if words is not None:
                progress.note_stream_start(0, words)
        return progress

    def facts(self, loader: Any) -> LoaderFacts:
        """Return the facts of the loader as it was when it was first asked in this epoch: lengths may take their time."""
        if self._facts is None:
            self._facts = facts_of(loader)
        return self._facts

    def resized_at(self, batch_size: int | None) -> tuple[int, int] | None:
        """The batches and samples of this epoch behind which batches have this size; None where it is not known."""
        rest = self.rest_of
        if rest is None:
            return 0, 0
        return rest.resized_at if rest.facts.batch_size == batch_size else (rest.batches, rest.samples)

    def generators(self) -> dict[str, Any]:
        """The generators' states at the start of the epoch, as texts."""
        if self._texts is None:
            self._texts = rng_snapshot.encode(self.then)
        if self._pulled is not None:
            self._texts["pulled"] = rng_snapshot.encode(self._pulled)
            self._pulled = None
        return self._texts

    def _watch_first_pull(self) -> None:
        """Without workers, ``next()`` first pulls the samplers; the script may have drawn numbers since they were opened."""
        names = [name for name, _ in self.then.world]
        # A base seed has been drawn from torch's. The others stand where they stood, unless the sampler has drawn already: then
        # they are noted without need.
        given = self._given
        seeded = rng_snapshot.capture(given, [name for name in names if name == TORCH])
        opened = RngSnapshot(seeded.given, tuple({**dict(self.then.world), **dict(seeded.world)}.items()))

        def note() -> None:
            pulled = rng_snapshot.capture(given, names)
            if pulled != opened:
                self._pulled = pulled

        self.source.iterator = _NotingIterator(note, self.source.iterator)


def _go_to_epoch(dataset: Any, streams: Sequence[StreamState]) -> None:
    """Set a stream to the epoch that its state is from. Hugging Face's ignore a state of another epoch, in silence.

    Before a stream's first batch they still give the number of the epoch before.
    """
    states = [each.dataset for each in streams if each.begun and each.at and isinstance(each.dataset, dict)]
    saved = states[0].get("epoch") if states else None
    epoch = getattr(dataset, "epoch", None)
    if type(saved) is not int or type(epoch) is not int or saved == epoch:
        return
    if callable(getattr(dataset, "set_epoch", None)):
        logging.getLogger("stoker").warning(
            "the saved epoch has number %d, and the dataset was set to %d: it goes on with %d, as it was saved",
            saved, epoch, saved,
        )  # fmt: skip
        dataset.set_epoch(saved)


def _first_words(dataset: Any) -> Resume | None:
    """The dataset's state before it is opened here. Without workers, other code may read the dataset and change its state."""
    if not is_stateful(dataset):
        return None
    try:
        state = pickle.dumps(dataset.state_dict())
    except Exception:  # before __iter__ it need not have a state
        return None
    own_iterator = hasattr(dataset, "__next__")
    return Resume(0, 0, *((None, state) if own_iterator else (state, None)))


class _NotingIterator:
    """An iterator; ``note`` is called before it is first pulled. No generator: one of those ends when Ctrl-C goes through it."""

    def __init__(self, note: Callable[[], None], iterator: Iterator[Any]) -> None:
        self._note: Callable[[], None] | None = note
        self._next = iterator.__next__

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._note is not None:
            self._note()
            self._note = None  # it knows the opening, which knows us
        return self._next()


def seed_after(base_seed: int) -> int:
    """The base seed of an epoch that draws none, from that of the epoch before."""
    return mix(base_seed, 0) >> 1


def facts_of(loader: Any) -> LoaderFacts:
    """What a state of this loader has to agree on."""
    sampler = loader._index_sampler
    batched = bool(loader._auto_collation)
    elastic = sampler_position.is_elastic(sampler, batched=batched)
    iterable = is_iterable(loader)
    inner = sampler.sampler if type(sampler) is BatchSampler else None
    by_rows = batched and inner is not None
    counting = sampler_position.distributed_part(sampler)
    return LoaderFacts(
        kind="iterable" if iterable else "map",
        length=None if iterable else _length(loader.dataset),
        sampler=() if iterable else tuple(_name(part) for part in (sampler, inner) if part is not None),
        sampler_length=None if iterable or elastic else _length(inner if by_rows else sampler),
        replicas=None if counting is None else counting.num_replicas,
        rank=None if counting is None else counting.rank,
        elastic=elastic,
        batch_size=sampler.batch_size if by_rows else loader.batch_size,
        rng=loader.rng,
    )


def stream_differences(saved: SavedState, loader: Any) -> list[str]:
    """Why the streams of a state cannot be taken up by this loader, if they cannot."""
    streams = saved.streams
    if streams is None or saved.finished or not is_iterable(loader):
        return []
    if any(each.dataset is not None for each in streams) and not is_stateful(loader.dataset):
        text = "its dataset had a state (state_dict), and this one has no load_state_dict"
        return [f"{text}: give the loader the dataset it had, or begin the epoch anew"]
    if len(streams) == stream_count(loader):
        return []
    text = (
        f"it has {len(streams)} stream(s) of an iterable dataset, one per worker, and this loader has {stream_count(loader)}: "
        f"give it num_workers={len(streams)}"
    )
    if callable(getattr(loader.dataset, "__stoker_reshard__", None)):
        if any(each.pulled and not each.ended and _has_no_state(each) for each in streams):
            return [
                f"{text}. The dataset can re-shard, but a stream of it has no state (state_dict) to re-shard"
            ]
        return []
    hook = "__stoker_reshard__(states, num_workers), which makes as many states of those it is given"
    return [f"{text}, or give the dataset {hook}, or begin the epoch anew"]


def resharded(streams: tuple[StreamState, ...], loader: Any) -> tuple[StreamState, ...]:
    """Return one stream for each worker there is now. The dataset makes them of the earlier ones.

    It is given None for a stream that has given nothing yet, and ``{}`` for one that has ended: what the dataset says of itself
    then may already mean the next epoch.
    """
    count = stream_count(loader)
    of_iterator = any(each.iterator is not None for each in streams)
    states: list[Any] = []
    for each in streams:
        state = {} if each.ended else each.iterator if of_iterator else each.dataset
        states.append(copy.deepcopy(state) if each.begun or each.ended else None)
    made = loader.dataset.__stoker_reshard__(states, count)
    if not isinstance(made, list | tuple) or len(made) != count:
        got = f"{len(made)} of them" if isinstance(made, list | tuple) else type(made).__name__
        raise ValueError(f"__stoker_reshard__ should return a list of {count} states, but returned {got}")
    if of_iterator:
        return tuple(StreamState(iterator=each, begun=True) for each in made)
    return tuple(StreamState(dataset=each, begun=True) for each in made)


def _has_no_state(stream: StreamState) -> bool:
    return stream.dataset is None and stream.iterator is None


def is_iterable(loader: Any) -> bool:
    """Whether its dataset is iterable-style."""
    return bool(loader._dataset_kind == torch_loader._DatasetKind.Iterable)


def snapshot_every(loader: Any) -> int:
    """How many steps lie between two states of the user's parts: with 0 or None more than there are."""
    return int(loader.snapshot_every_n_steps or sys.maxsize)


def stream_count(loader: Any) -> int:
    """How many streams read an iterable dataset: one per worker, or one in this process without workers."""
    return max(1, int(loader.num_workers))


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except Exception:  # it has none, whatever it raises to say so
        return None


def _name(part: Any) -> str:
    kind = type(part)
    return f"{kind.__module__}.{kind.__qualname__}"
