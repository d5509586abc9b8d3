"""``stoker.cached``: a function whose results are kept in a store, by its arguments and the files that these name."""

from __future__ import annotations

import functools
import logging
import os
import pickle
import sys
import time
import weakref
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from stoker._runtime.cache import files
from stoker._runtime.cache.counters import counters
from stoker._runtime.cache.dataset import tag_of
from stoker._runtime.cache.identity import Identity, of_dataset, of_function, of_function_copy
from stoker._runtime.cache.proving.checking import Verifier, made_again, require_equal
from stoker._runtime.cache.proving.draws import DrawWatch
from stoker._runtime.cache.proving.parts import parts_of
from stoker._runtime.cache.storage import sample_codec
from stoker._runtime.cache.storage.attaching import StoreHandle
from stoker._runtime.cache.storage.store import Entry, EntryKey, Store
from stoker._runtime.cache.watch import AttributeWatch
from stoker.errors import CacheRefused, RandomSamples, UnsendableError

_log = logging.getLogger("stoker")
_MOST_OWNERS = 64
_PROBES = 8
"""How many slots of the table a key may lie in."""

_CHECKED = 3
"""How many results each process makes twice before it relies on the function."""


class FunctionFacts(NamedTuple):
    """What a cached function knows of itself; it travels to workers. ``tag`` comes from ``parts``; ``opaque`` could not be read."""

    tag: int
    verify: float
    info: dict[str, Any]
    parts: dict[str, bytes]
    opaque: dict[str, str]


class _Owner(NamedTuple):
    """An instance whose decorated method is called: what it holds, and its digest, which is a part of the key.

    ``alive`` is a weak reference where the instance has such.
    """

    alive: Callable[[], Any]
    watch: AttributeWatch
    identity: Identity
    digest: bytes


class CachedFunction:
    """A function with its results in a store. Made by ``stoker.cached``; called like the function that it wraps.

    Any thread and any process may call it. A result is a fresh copy each time, so changing it changes nothing else.
    """

    def __init__(self, function: Callable[..., Any], handle: StoreHandle, facts: FunctionFacts) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._handle = handle
        self._facts = facts
        self._told: set[str] = set()
        self._checks = _CHECKED
        self._owners: dict[int, _Owner] = {}
        self._verifier = Verifier(facts.verify)
        owner = getattr(function, "__self__", function)
        self._watch = AttributeWatch(owner)
        self._identity = of_function_copy(function, Identity(facts.parts, facts.opaque))
        self._generators = parts_of(owner, "function").generators
        self._draws = DrawWatch(self._generators)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(args, kwargs, args, b"")

    def _call(self, args: Any, kwargs: Any, named: Any, owner: bytes) -> Any:
        """Call with ``args``. The key comes from ``named``, the same without the instance of a method, and from its ``owner``."""
        try:
            first, second, stamps = _key(named, kwargs, owner)
        except Exception as error:
            return self._pass(args, kwargs, error)
        if self._watch.changed():
            self._look()
        key = EntryKey(first, second, self._facts.tag)
        store = self._handle._store or self._handle.open()
        slots, words = store.slots, store.words
        free = -1
        for place in range(first, first + _PROBES):
            slot = place % slots
            if not words[slot]:
                free = slot
                break
            found = store.find(slot, key)
            if found is not None:
                facts_stop, root_stop = found.facts_stop, found.root_stop
                if facts_stop == root_stop or files.unchanged(store.view[root_stop:facts_stop]):
                    files.note_hit(store.view[root_stop:facts_stop], stamps)
                    return self._hit(store, found, args, kwargs)
                free = slot
                break
        return self._miss(store, free, key, args, kwargs, stamps)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self._call_bound, instance)

    def _call_bound(self, instance: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a decorated method. What the instance holds is part of the key; it is read again when an attribute is replaced."""
        owner = self._owners.get(id(instance))
        if owner is None or owner.alive() is not instance or owner.watch.changed():
            owner = self._look_at(instance, owner)
        if owner.identity.opaque and self._is_for_others():
            return self._pass((instance, *args), kwargs, CacheRefused(unread(owner.identity, "self")))
        result = self._call((instance, *args), kwargs, args, owner.digest)
        if owner.watch.changed():  # by the method itself: a handle that it opened, a number that it counts
            owner.watch.renew()
        return result

    def _look_at(self, instance: Any, known: _Owner | None) -> _Owner:
        """Read what an instance holds. It is remembered while the instance lives, and many others have not come since."""
        same = known is not None and known.alive() is instance
        identity = of_dataset(instance, known.identity if known is not None and same else None)
        number, owners = id(instance), self._owners
        try:
            alive: Callable[[], Any] = weakref.ref(instance, lambda _: owners.pop(number, None))
        except TypeError:
            alive = functools.partial(_itself, instance)
        owner = _Owner(alive, AttributeWatch(instance), identity, identity.whole())
        owners.pop(number, None)
        while len(owners) >= _MOST_OWNERS:
            owners.pop(next(iter(owners)), None)
        owners[number] = owner
        return owner

    def _is_for_others(self) -> bool:
        """Whether results outlive this process, or are shared by a name."""
        return self._facts.info.get("path") is not None or self._facts.info.get("name") is not None

    def __stoker_identity__(self) -> Any:
        return self.function

    def __repr__(self) -> str:
        return f"stoker.cached({self.function!r})"

    def __deepcopy__(self, memo: Any) -> CachedFunction:
        return self

    def __reduce__(self) -> Any:
        if _at_home(self.function) is self:  # a decorated function: its name leads to this object
            home = (self.function.__module__, self.function.__qualname__)
            return _restored, (*home, self._handle, self._facts)
        return CachedFunction, (self.function, self._handle, self._facts)

    def cache_info(self) -> dict[str, Any]:
        """Return what the store holds: budget_bytes, stored_bytes, entries, full, name, path, and refused with a reason."""
        return {**self._handle.contents(), **self._facts.info}

    def _look(self) -> None:
        """An attribute of the function's object was replaced: results of another identity are not used."""
        now = of_function(self.function, known=self._identity)
        self._identity = now
        tag = tag_of(now.whole())
        if tag != self._facts.tag:
            self._facts = self._facts._replace(tag=tag, parts=now.parts, opaque=now.opaque)
            self._checks = _CHECKED
            text = "an attribute of %r changed, so results that were kept before are made anew"
            self._tell("changed", text, self.function)
        self._watch.renew()

    def _hit(self, store: Store, found: Entry, args: Any, kwargs: Any) -> Any:
        start, root_start, root_stop, _, cost_ns = found
        result = sample_codec.decode(
            bytearray(store.view[start:root_start]), 0, store.view[root_start:root_stop]
        )
        if self._verifier.due():
            self._verify(args, kwargs, bytes(store.view[start:root_stop]))
        count = counters()
        count.hits += 1
        count.hit_bytes += root_stop - start
        count.saved_ns += cost_ns
        return result

    def _miss(
        self, store: Store, slot: int, key: EntryKey, args: Any, kwargs: Any, named: files.Stamps
    ) -> Any:
        mark = self._draws.mark()
        files.begin(named)
        began_ns = time.perf_counter_ns()
        try:
            result = self.function(*args, **kwargs)
            cost_ns = time.perf_counter_ns() - began_ns
        finally:
            stamps = files.end(named)
        if self._watch.changed():
            self._watch.renew()
        count = counters()
        count.misses += 1
        drawn = self._draws.drawn(mark)
        if drawn:
            count.passed += 1
            self._refuse(drawn)
        if stamps is None:
            text = "a file that %r read changed meanwhile, so the result is not kept"
            self._tell("unsettled", text, self.function)
            count.passed += 1
            return result
        try:
            encoded = sample_codec.encode(result)
        except UnsendableError as error:
            text = "a result of %r cannot be kept in the cache, so it is made each time: %s"
            self._tell("unkept", text, self.function, sample_codec.why_unkept(error))
            count.passed += 1
            return result
        if self._checks > 0:
            self._checks -= 1
            self._verify(args, kwargs, None, result)
        stored = store.append(slot, key, encoded.data, encoded.root, stamps, cost_ns) if slot >= 0 else 0
        count.stored_bytes += stored
        if not stored:
            count.passed += 1
        return result

    def _verify(self, args: Any, kwargs: Any, kept: bytes | None, result: Any = None) -> None:
        """Make a result again, under another seed, and compare. Raises CacheMismatch or RandomSamples."""
        again = made_again(lambda: self.function(*args, **kwargs), self._generators)
        shown = ", ".join(repr(each)[:60] for each in args)
        name = getattr(self.function, "__name__", type(self.function).__name__)
        require_equal(f"the result of {name}({shown})", again, kept, result)

    def _refuse(self, drawn: list[str]) -> NoReturn:
        raise RandomSamples(
            f"{self.function!r} draws from {' and '.join(drawn)}, so its results cannot be kept: one of them would stay for "
            "ever. Cache the function that only reads and decodes",
            drawn,
        )

    def _pass(self, args: Any, kwargs: Any, error: Exception) -> Any:
        text = "an argument of %r cannot be a key of the cache, so its result is made each time: %s"
        self._tell("argument", text, self.function, error)
        count = counters()
        count.misses += 1
        count.passed += 1
        return self.function(*args, **kwargs)

    def _tell(self, what: str, text: str, *parts: Any) -> None:
        """Log something once."""
        if what not in self._told:
            self._told.add(what)
            _log.warning("%s", text % parts)  # a record with the parts would keep the function and its store


def _key(args: tuple[Any, ...], kwargs: dict[str, Any], owner: bytes) -> tuple[int, int, files.Stamps]:
    """Return the digest of the arguments, and size and mtime of the files that strings and paths among them name.

    These are part of the digest.
    """
    named = [str(each) for each in (*args, *kwargs.values()) if isinstance(each, str | Path)]
    stamps = [files.stamp_of(path) for path in named]
    digest = blake2b(pickle.dumps((args, kwargs, stamps, owner), 5), digest_size=16).digest()
    found: files.Stamps = {
        os.path.abspath(path): stamp for path, stamp in zip(named, stamps, strict=True) if stamp
    }
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little"), found


def _itself(instance: Any) -> Any:
    return instance


def unread(identity: Identity, root: str) -> str:
    """Say what of a dataset or function has no identity, and what to do."""
    name, what = next(iter(identity.opaque.items()))
    place = f"{root}.{name}" if name.strip() else f"the code of {root}"
    return (
        f"{place} holds what stoker cannot read ({what}), so nothing tells whether samples that another run or process kept are "
        "the same. Open it when the first sample is made, give its class a method __stoker_identity__ that returns bytes which "
        "say what it holds, or leave out path= and name="
    )


def _at_home(function: Any) -> Any:
    """Return what the function's name leads to; None where it leads nowhere."""
    found: Any = sys.modules.get(getattr(function, "__module__", None) or "")
    for name in getattr(function, "__qualname__", "<").split("."):
        found = getattr(found, name, None)
    return found


def _restored(module: str, qualname: str, handle: StoreHandle, facts: FunctionFacts) -> Any:
    """Return the decorated function of this process, with the store that the pickle means."""
    __import__(module)
    found: Any = sys.modules[module]
    for name in qualname.split("."):
        found = getattr(found, name)
    if isinstance(found, CachedFunction) and found._handle.plan != handle.plan:
        found._handle, found._facts = handle, facts
    return found
