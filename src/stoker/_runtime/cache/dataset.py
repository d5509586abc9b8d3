"""``stoker.cache``: a map-style dataset whose samples are kept in a store after first use.

fetch(index) ─► the word of the index ─► entry of this identity? files unchanged? ─► decode            a hit
                          └─ no ─► dataset[index] ─► did it draw? ─► encode, append, write the word     a miss
"""

from __future__ import annotations

import logging
import marshal
import operator
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from torch.utils.data import Dataset, Subset

from stoker._runtime.cache import files
from stoker._runtime.cache.counters import counters
from stoker._runtime.cache.identity import Identity, of_copy, of_dataset
from stoker._runtime.cache.proving.checking import Verifier, made_again, require_equal
from stoker._runtime.cache.proving.draws import DrawWatch
from stoker._runtime.cache.proving.parts import parts_of
from stoker._runtime.cache.split import CutSample, SplitDataset
from stoker._runtime.cache.storage import sample_codec
from stoker._runtime.cache.storage.attaching import StoreHandle
from stoker._runtime.cache.storage.store import Entry, EntryKey, Store
from stoker._runtime.cache.watch import AttributeWatch
from stoker.errors import RandomSamples, UnsendableError

_log = logging.getLogger("stoker")


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """What a cached dataset knows of itself; it travels to workers.

    ``identity`` is the dataset's, from its ``parts``, of which ``opaque`` could not be read. ``changing`` are those that fetching
    changes: they count as they were at first. Entries carry ``tag``. ``before`` and ``steps`` say where the dataset is cut.
    ``info`` is part of what ``cache_info`` returns.
    """

    length: int
    identity: bytes
    tag: int
    parts: dict[str, bytes]
    changing: frozenset[str]
    before: str | None
    steps: int | None
    verify: float
    info: dict[str, Any]
    opaque: dict[str, str] = field(default_factory=dict)


class CachedDataset(Dataset[Any]):
    """A dataset with its samples in a store. Made by ``stoker.cache``; used like the dataset that it wraps.

    ``dataset`` is the wrapped one. Other attributes are read from it and written to it. Any thread and any process may fetch.
    """

    def __init__(self, dataset: Any, handle: StoreHandle, facts: CacheFacts) -> None:
        own = self.__dict__
        own["dataset"] = dataset
        own["_handle"] = handle
        own["_cache"] = _SampleCache(dataset, handle, facts)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        cache: _SampleCache = self._cache
        cache.look(self.dataset)
        return cache.fetch(index, False)

    def __getattr__(self, name: str) -> Any:
        if name == "__getitems__" and self._cache.split is None:
            inner = _batch_getter(self.dataset)
            if inner is None:  # without one there, there is none here
                raise AttributeError(f"{type(self.dataset).__name__!r} object has no attribute {name!r}")
            return lambda indices: self._cache.fetch_together(indices, inner)
        if name.startswith("__") or name in ("dataset", "_handle", "_cache"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.dataset, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "dataset":
            self.__dict__[name] = value
        else:
            setattr(self.dataset, name, value)

    def __repr__(self) -> str:
        return f"stoker.cache({self.dataset!r})"

    def __reduce__(self) -> Any:
        cache: _SampleCache = self._cache
        cache.look(self.dataset)
        return CachedDataset, (self.dataset, self._handle, cache.facts)

    def cache_info(self) -> dict[str, Any]:
        """Return what the store holds: budget_bytes, stored_bytes, entries, full, name, path, before, and refused with a reason."""
        return {**self._handle.contents(), **self._cache.facts.info}

    def __stoker_views__(self) -> Callable[[Any], Any]:
        """Return a function that fetches samples which lie in the store. Called by a worker's fetcher, for each range of rows.

        Only for torch's own collation, which copies every tensor.
        """
        cache: _SampleCache = self._cache
        cache.look(self.dataset)
        return cache.fetch_view


class _SampleCache:
    """The cache of one CachedDataset in one process."""

    def __init__(self, dataset: Any, handle: StoreHandle, facts: CacheFacts) -> None:
        self.facts = facts
        self.split: SplitDataset | None = None
        self._dataset = dataset
        self._handle = handle
        self._verifier = Verifier(facts.verify)
        self._identity = of_copy(dataset, Identity(facts.parts, facts.opaque))
        self._recheck = 0
        self._told: set[str] = set()
        self._lock = threading.Lock()
        self._begin(dataset, facts.steps)

    def _begin(self, dataset: Any, steps: int | None) -> None:
        self._dataset = dataset
        self.split = None
        if self.facts.before is not None:
            split = SplitDataset(dataset, self.facts.before, steps)
            self.split = split
        self._paths = files.PathLists(dataset, self.facts.length)
        self._generators = parts_of(dataset).generators
        self._draws = DrawWatch(self._generators)
        self._watch = AttributeWatch(dataset)

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("copied with its CachedDataset only")

    def look(self, dataset: Any) -> None:
        """Look whether the dataset was changed; if its identity is another, samples that were kept before are not used."""
        if dataset is self._dataset and not self._watch.changed():
            return
        with self._lock:
            if dataset is self._dataset and not self._watch.changed():
                return
            begun = Identity(self.facts.parts)
            now = of_dataset(dataset, known=self._identity).as_begun(begun, self.facts.changing)
            before, self._identity = self._identity, now
            identity = now.whole()
            if identity == self.facts.identity:
                self._begin(dataset, self.facts.steps)
                return
            names = [name.strip() for name in now.differing(before) if name]
            text = "%s of the cached dataset changed, so samples that were kept before are made anew"
            self._tell("changed", text, " and ".join(names) or "an attribute")
            self._begin(dataset, None)
            steps = None if self.split is None else self.split.steps
            tag = tag_of(identity_of_cut(identity, self.facts.before, steps))
            self.facts = replace(
                self.facts, identity=identity, tag=tag, parts=now.parts, steps=steps, opaque=now.opaque
            )
            self._recheck = 2

    def fetch_view(self, index: Any) -> Any:
        """Return a sample that may lie in the store."""
        return self.fetch(index, True)

    def fetch(self, index: Any, view: bool) -> Any:
        """Return the sample of an index, kept or made. With ``view`` its tensors may lie in the store."""
        if type(index) is not int:
            if type(index) is bool or not hasattr(type(index), "__index__"):
                return self._pass(index)
            try:
                index = operator.index(index)
            except TypeError:
                return self._pass(index)
        if not 0 <= index < self.facts.length:
            return self._pass(index)
        store = self._handle._store or self._handle.open()
        key = EntryKey(index, 0, self.facts.tag)
        found = store.find(index, key)
        if found is None or not self._fresh(store, found):
            return self._miss(store, index, key)
        return self._hit(store, index, found, view)

    def fetch_together(self, indices: Any, inner: Callable[[Any], Any]) -> Any:
        """Return the samples of a batch. The dataset's own ``__getitems__`` makes those that are not kept."""
        self.look(self._dataset)
        indices = list(indices)
        store = self._handle.open()
        keys = [EntryKey(index, 0, self.facts.tag) for index in indices if type(index) is int]
        found: list[Entry | None] = []
        if len(keys) == len(indices) and all(0 <= index < self.facts.length for index in indices):
            found = [store.find(index, key) for index, key in zip(indices, keys, strict=True)]
            found = [each if each is not None and self._fresh(store, each) else None for each in found]
        missing = (
            [place for place, each in enumerate(found) if each is None]
            if found
            else list(range(len(indices)))
        )
        began_ns = time.perf_counter_ns()
        mark = self._draws.mark()
        files.begin([path for place in missing for path in self._paths_of(indices[place])])
        try:
            made = inner([indices[place] for place in missing]) if missing else []
        finally:
            stamps = files.end()
        cost_ns = (time.perf_counter_ns() - began_ns) // max(1, len(missing))
        if self._watch.changed():
            self._watch.renew()
        counters().misses += len(missing)
        if (
            not found
            or not isinstance(made, list | tuple)
            or len(made) != len(missing)
            or self._drew(mark, indices)
            or not self._is_settled(stamps, indices)
        ):
            counters().passed += len(missing)
            return made if not found or len(missing) == len(indices) else inner(indices)
        samples: list[Any] = [None] * len(indices)
        facts = (
            marshal.dumps((stamps, [])) if stamps else b""
        )  # which file is for which sample, nothing tells
        for place, sample in zip(missing, made, strict=True):
            samples[place] = sample
            self._keep(store, indices[place], keys[place], sample, facts, cost_ns)
        for place, each in enumerate(found):
            if each is not None:
                samples[place] = self._hit(store, indices[place], each, False)
        return samples

    def _fresh(self, store: Store, found: Entry) -> bool:
        """Whether the files of an entry are as they were."""
        if found.facts_stop == found.root_stop:
            return True
        stamps, _ = marshal.loads(store.view[found.root_stop : found.facts_stop])
        return not stamps or files.unchanged(stamps)

    def _hit(self, store: Store, index: int, found: Entry, view: bool) -> Any:
        start, root_start, root_stop, facts_stop, cost_ns = found
        root = store.view[root_start:root_stop]
        if view and (self.split is None or self.split.is_whole):
            sample = sample_codec.decode(store.anchor, start, root)
        else:
            sample = sample_codec.decode(bytearray(store.view[start:root_start]), 0, root)
        if self._verifier.due():
            self._verify(index, bytes(store.view[start:root_stop]))
        if facts_stop != root_stop:
            files.note_hit(marshal.loads(store.view[root_stop:facts_stop])[0])
        count = counters()
        count.hits += 1
        count.hit_bytes += root_stop - start
        count.saved_ns += cost_ns
        if self.split is not None:
            _, places = marshal.loads(store.view[root_stop:facts_stop])
            return self.split.finish(sample, places)
        return sample

    def _miss(self, store: Store, index: int, key: EntryKey) -> Any:
        mark = self._draws.mark()
        files.begin(self._paths.of(index))
        began_ns = time.perf_counter_ns()
        try:
            sample, places = self._make(index)
            cost_ns = time.perf_counter_ns() - began_ns
        finally:
            stamps = files.end()
        if self._watch.changed():  # by the dataset itself: a handle that it opened, a number that it counts
            self._watch.renew()
        counters().misses += 1
        if self._drew(mark, index) or not self._is_settled(stamps, index):
            counters().passed += 1
        else:
            if self._recheck > 0:
                self._recheck -= 1
                self._verify(index, None, sample)
            self._keep(
                store,
                index,
                key,
                sample,
                marshal.dumps((stamps, places)) if stamps or places else b"",
                cost_ns,
            )
        return sample if self.split is None else self.split.finish(sample, places)

    def _paths_of(self, index: Any) -> list[str]:
        return self._paths.of(index) if type(index) is int and 0 <= index < self.facts.length else []

    def _is_settled(self, stamps: bytes | None, index: Any) -> bool:
        """Whether the files of a sample stayed as they were while it was made."""
        if stamps is None:
            text = "a file of sample %s changed while the sample was made, so it is not kept"
            self._tell("unsettled", text, index)
        return stamps is not None

    def _make(self, index: int) -> CutSample:
        """Make a sample, up to the part that runs anew."""
        if self.split is not None:
            return self.split.fetch(index)
        return CutSample(self._dataset[index], [])

    def _keep(self, store: Store, index: int, key: EntryKey, sample: Any, facts: bytes, cost_ns: int) -> None:
        count = counters()
        try:
            encoded = sample_codec.encode(sample)
        except UnsendableError as error:
            text = "sample %s cannot be kept in the cache, so it is made each time: %s"
            self._tell("unkept", text, index, sample_codec.why_unkept(error))
            count.passed += 1
            return
        stored = store.append(index, key, encoded.data, encoded.root, facts, cost_ns)
        count.stored_bytes += stored
        if not stored:
            count.passed += 1

    def _pass(self, index: Any) -> Any:
        """Fetch with an index that is no row number, past the cache."""
        count = counters()
        count.misses += 1
        count.passed += 1
        return self._dataset[index]

    def _drew(self, mark: Any, index: Any) -> bool:
        drawn = self._draws.drawn(mark)
        if drawn and self._recheck > 0:
            raise RandomSamples(
                f"since the dataset was changed, sample {index} of {type(self._dataset).__name__} draws from "
                f"{' and '.join(drawn)}; a cache would freeze it. Give stoker.cache a dataset whose samples are the same each time",
                drawn,
            )
        if drawn:
            self._tell(
                "drew",
                "sample %s drew from %s, so it is not kept: later samples would get other numbers",
                index,
                " and ".join(drawn),
            )
        return bool(drawn)

    def _verify(self, index: int, kept: bytes | None, sample: Any = None) -> None:
        """Make a sample again, under another seed, and compare. Raises CacheMismatch or RandomSamples."""
        again = made_again(lambda: self._make(index).sample, self._generators)
        name = f"sample {index} of {type(self._dataset).__name__}"
        require_equal(name, again, kept, sample)

    def _tell(self, what: str, text: str, *parts: Any) -> None:
        """Log something once."""
        if what not in self._told:
            self._told.add(what)
            _log.warning("%s", text % parts)


def _batch_getter(dataset: Any) -> Callable[[Any], Any] | None:
    """Return the dataset's ``__getitems__``; None where it fetches one by one, as torch's Subset of a plain dataset does."""
    found: Callable[[Any], Any] | None = getattr(dataset, "__getitems__", None)
    while found is not None and type(dataset) is Subset:
        dataset = dataset.dataset
        if not callable(getattr(dataset, "__getitems__", None)):
            return None
    return found


def identity_of_cut(identity: bytes, before: str | None, steps: int | None) -> bytes:
    """Return the identity of what is kept of a dataset: all of it, or what comes before a step of a transform."""
    return (
        identity
        if before is None
        else blake2b(identity + f"{before}:{steps}".encode(), digest_size=32).digest()
    )


def tag_of(identity: bytes) -> int:
    """Return the 64 bits of an identity that entries carry; never 0."""
    return int.from_bytes(identity[:8], "little") or 1
