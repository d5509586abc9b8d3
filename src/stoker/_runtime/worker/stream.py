"""Reads one worker's stream of an iterable dataset: opened per epoch, pulled batch by batch, resumed after a crash.

When the worker of a stream dies, its replacement opens the stream anew and skips as many batches as were delivered. So every sample
arrives once, in order, if the dataset gives the same samples again. A dataset or iterator with ``state_dict`` and
``load_state_dict`` is set to its last state instead. Then only batches that were made but not delivered are read twice. A state
that leaves samples out is not used, and one that cannot be loaded is given up: the stream is read from its beginning.
"""

from __future__ import annotations

import copy
import itertools
import logging
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import IterDataPipe
from torch.utils.data.graph_settings import apply_random_seed

from stoker._runtime.protocol.worker_spec import BatchOrder, Resume, WorkerSpec, is_stateful
from stoker._runtime.worker import loaded_state
from stoker._runtime.worker.bad_samples import BadSample, StreamPlace, good_samples

_log = logging.getLogger("stoker")
_MOST_STEPS = 10_000
"""How many steps of a dataset are looked at. Each ``map``, ``filter`` and the like is one."""


class StreamEnded(Exception):
    """Raised when an iterable dataset has no further batch. ``final_state`` is the state of a stateful dataset."""

    final_state: Resume | None = None


class _WrongIterator(ValueError):
    """A state has one of an iterator, and the dataset's iterator has none."""


class Abandoned(Exception):
    """Raised between two samples when the epoch of this batch is over."""


class SampleStream:
    """Reads the stream of one worker. Owner: a batch maker; called on its thread.

    ``before(order, pulled)`` seeds, and raises Abandoned when the epoch is over. ``bad`` collects bad samples; None raises
    their errors. ``keeps_state`` asks for ``state`` after every batch. ``shared``: other streams read the same dataset object.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        worker: int,
        before: Callable[[BatchOrder, int], None],
        bad: list[BadSample] | None,
        *,
        keeps_state: bool,
        resume: Resume | None,
        shared: bool = False,
    ) -> None:
        self._spec = spec
        self._worker = worker
        self._dataset = spec.dataset
        self._before = before
        self._bad = bad
        self._keeps_state = keeps_state
        self._shared = shared
        self._resume = resume
        self._stateful: tuple[Any, Any] = (None, None)
        self._iterator: Iterator[Any] | None = None
        self._epoch = -1
        self._ended = False
        self._holds_place = True
        """Whether the dataset's state says all of where the stream stands."""
        self._loaded: Resume | None = None
        """The state that was loaded, until a sample has followed it."""
        self._watches = False
        """Whether a state was loaded into the dataset, and it is not known yet whether it begins there again in later epochs."""
        self._pulled = 0
        self._sampled = 0

    def batch(self, order: BatchOrder) -> Any:
        """Return the samples of this order (one sample without automatic batching). Raises StreamEnded after the last."""
        if self._iterator is None or self._epoch != order.epoch:
            self._open(order)
        while self._pulled < order.pull and not self._ended:
            self._pass_over(order)
        if self._ended:
            raise self._end()
        return self._pull(order)

    def resume_at(self, resume: Resume) -> None:
        """Start at this state, in the epoch that it names."""
        self._resume = resume

    def state(self) -> Resume | None:
        """Return where the stream stands, if the dataset is stateful and a snapshot is due."""
        return self._resume_point() if self._ended or self._pulled % self._spec.snapshot_every == 0 else None

    def _end(self) -> StreamEnded:
        end = StreamEnded()
        end.final_state = self._resume_point()
        return end

    def _resume_point(self) -> Resume | None:
        dataset, iterator = self._stateful
        if dataset is None and iterator is None:
            return None
        try:
            return Resume(self._epoch, self._pulled, _kept(dataset), _kept(iterator), ended=self._ended)
        except Exception as error:
            self._stateful = (None, None)
            _log.warning(
                "the dataset's state_dict() cannot be kept (%r): after a crash, and when the loader's state is loaded, its "
                "stream is read again from its beginning",
                error,
            )
            return None

    def _open(self, order: BatchOrder) -> None:
        """Open the stream for this epoch, at the state that a lost worker left, if there is one."""
        self._before(order, 0)
        self._seed_pipe(order)
        self._epoch = order.epoch
        self._ended = False
        self._pulled = self._sampled = 0
        resume = self._resume if self._resume is not None and self._resume.epoch == order.epoch else None
        self._resume = self._loaded = None
        self._holds_place = not loses_samples(self._dataset)
        if not self._holds_place:
            self._warn_of_buffer(order)
            resume = None if resume is None else resume._replace(dataset=None, iterator=None, pulled=0)
        if resume is None:
            self._open_iterator()
            return
        try:
            self._take_up(resume)
        except _WrongIterator:
            raise
        except Exception as error:
            if not self._starts_over(resume, repr(error)):
                raise

    def _take_up(self, resume: Resume) -> None:
        """Open the stream at this state."""
        dataset = self._dataset
        if resume.dataset is not None:
            if self._shared:
                dataset.load_state_dict(pickle.loads(resume.dataset))
            else:
                loaded_state.load(dataset, resume.dataset, at_start=resume.at_start or resume.ended)
        if resume.ended:  # its state may already belong to the next epoch
            self._iterator, self._ended = iter(()), True
            return
        iterator = self._open_iterator()
        if not resume.fresh:
            if resume.iterator is not None:
                if not is_stateful(iterator):
                    raise _WrongIterator(
                        f"the state that was loaded has one of the dataset's iterator, and {type(iterator).__name__} has no "
                        "load_state_dict: give the loader the dataset it had, or begin the epoch anew"
                    )
                iterator.load_state_dict(pickle.loads(resume.iterator))
            self._pulled = resume.pulled
        if resume.dataset is not None or resume.iterator is not None:
            self._loaded = resume

    def _starts_over(self, resume: Resume, why: str) -> bool:
        """Open the stream at its beginning, because this state cannot be used. False if other samples would come from there."""
        dataset = self._dataset
        is_place = not resume.fresh and not resume.ended and (resume.pulled > 0 or resume.at_start)
        if not is_place or self._shared or hasattr(dataset, "__stoker_reshard__"):
            return False
        if resume.iterator is not None and self._iterator is dataset:  # nothing to begin anew
            return False
        if resume.dataset is not None and not loaded_state.undo(dataset):
            return False
        _log.warning(
            "worker %d cannot go on from the state of %s that was loaded: %s. Its stream is read again from the beginning of the "
            "epoch, without the state",
            self._worker,
            type(dataset).__name__,
            why,
        )
        self._loaded = None
        self._pulled = self._sampled = 0
        self._open_iterator()
        return True

    def _warn_of_buffer(self, order: BatchOrder) -> None:
        if order.pull and not self._worker:  # once, not by every worker
            _log.warning(
                "the state of %s lacks the samples in its shuffle buffer: its streams are read again from the beginning of the "
                "epoch, up to where they were",
                type(self._dataset).__name__,
            )

    def _open_iterator(self) -> Any:
        dataset = self._dataset
        iterator: Any = iter(dataset)
        self._iterator = iterator
        self._stateful = (None, None)
        self._watches = not self._shared and loaded_state.is_watched(dataset)
        if self._keeps_state and self._holds_place:
            apart = iterator is not dataset
            self._stateful = (
                dataset if apart and is_stateful(dataset) else None,
                iterator if is_stateful(iterator) else None,
            )
        return iterator

    def _seed_pipe(self, order: BatchOrder) -> None:
        """Seed the generators of DataPipes, equally in all workers, so that shards of one shuffle fit together."""
        if isinstance(self._dataset, IterDataPipe):
            generator = torch.Generator()
            generator.manual_seed(order.pipe_seed)
            self._dataset = apply_random_seed(self._dataset, generator)

    def _pass_over(self, order: BatchOrder) -> None:
        """Pull a batch that a lost worker delivered; ignore its error."""
        try:
            self._pull(order)
        except (StreamEnded, Abandoned):
            raise
        except Exception:
            return
        finally:
            if self._bad:
                self._bad.clear()  # they were counted then

    def _pull(self, order: BatchOrder) -> Any:
        assert self._iterator is not None
        self._pulled += 1
        self._before(order, self._pulled)
        batched = self._spec.auto_collation
        wanted = len(order.indices) if batched else 1
        try:
            if self._watches or self._loaded is not None:
                samples = self._take_first(order)
                if samples and wanted > 1:
                    samples += self._take(wanted - 1, row=1)
            else:
                samples = self._take(wanted)
        finally:
            if self._bad:
                self._bad[:] = [each._replace(index=self._place(each.index)) for each in self._bad]
        if len(samples) < wanted:
            self._ended = True
            if not samples or self._spec.drop_last:
                raise self._end()
        return samples if batched else samples[0]

    def _take(self, wanted: int, row: int = 0) -> list[Any]:
        """Return up to so many samples, of which the first is row ``row`` of its batch."""
        assert self._iterator is not None
        if self._bad is None:
            # Only next(), as torch does: the __iter__ of an iterator may start it anew.
            return list(map(next, itertools.repeat(self._iterator, wanted)))
        known = len(self._bad)
        try:
            return good_samples(self._iterator, wanted, self._bad, self._count)
        finally:
            if row:
                self._bad[known:] = [each._replace(row=each.row + row) for each in self._bad[known:]]

    def _take_first(self, order: BatchOrder) -> list[Any]:
        """Return the first sample of an epoch that follows a loaded state, or none. Its dataset may have to be opened again."""
        watches, self._watches = self._watches, False
        samples = self._take(1) if self._loaded is None else self._take_after_loading(order, self._loaded)
        for _ in range(2 if watches else 0):
            states = self._states() if samples else loaded_state.ENDED
            if not loaded_state.begins_again(self._dataset, states):
                break
            if self._bad:
                self._bad.clear()
            self._sampled = 0
            self._before(order, 0)
            self._open_iterator()
            self._watches = False
            self._before(order, self._pulled)
            samples = self._take(1)
            if not loaded_state.is_watched(self._dataset):
                break
        return samples

    def _take_after_loading(self, order: BatchOrder, resume: Resume) -> list[Any]:
        """Return the first sample after a state was loaded, or none. If it raises, the stream is read from its beginning."""
        self._loaded = None
        place = self._pulled
        try:
            samples = self._take(1)
        except Exception as error:
            if not self._starts_over(resume, repr(error)):
                raise
        else:
            failed = bool(self._bad) and not samples  # and it ended with that
            if not failed or not self._starts_over(resume, self._bad[0].reason if self._bad else ""):
                return samples
        if self._bad:
            self._bad.clear()
        while self._pulled < place - 1:
            self._pass_over(order)
            if self._ended:
                raise self._end()
        self._pulled += 1
        self._before(order, self._pulled)
        return self._take(1)

    def _states(self) -> Any:
        """Return the states of the dataset and its iterator. They may change what they return."""
        parts: tuple[Any, Any] = (self._dataset, self._iterator)
        return copy.deepcopy([part.state_dict() if is_stateful(part) else None for part in parts])

    def _place(self, number: int) -> StreamPlace:
        return StreamPlace(f"sample {number} of worker {self._worker}'s stream")

    def _count(self) -> int:
        self._sampled += 1
        return self._sampled - 1


def _kept(part: Any) -> bytes | None:
    return None if part is None else pickle.dumps(part.state_dict())


def loses_samples(dataset: Any) -> bool:
    """Whether the dataset would lose samples if its state were loaded: those in a shuffle buffer, which is no part of it.

        dataset._ex_iterable ──► .ex_iterable ──► .ex_iterables[0] ──► … has .buffer_size, and no state of its own

    So it is with Hugging Face's iterable datasets: their ``state_dict`` tells how far the source was read.
    """
    found = getattr(dataset, "_ex_iterable", None)
    steps = [] if found is None else [found]
    for step in steps:  # grows while it is iterated
        source = getattr(step, "ex_iterable", None)
        if source is not None:
            if hasattr(step, "buffer_size") and _state_of(step) is _state_of(source):
                return True
            steps.append(source)
        several = getattr(step, "ex_iterables", None)
        if isinstance(several, list | tuple):
            steps.extend(several)
        if len(steps) > _MOST_STEPS:
            break
    return False


def _state_of(step: Any) -> Any:
    """A step with nothing to add to the state shares its source's. None before the state is first made."""
    return getattr(step, "_state_dict", None)
