"""Computes the identity of a dataset or function: digests of its code, its attributes and the libraries that it comes from.

Equal identities mean equal samples, so a store may be used again. Each attribute has a digest of its own, by its path, and so have
attributes of the objects in attributes. One that cannot be read has a random digest, which is equal to no other. Any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from types import MethodType
from typing import Any

from stoker._runtime.cache import sources
from stoker._runtime.cache.digest import Digest, attributes, digest_of

_FORMAT = b"2"
_NESTED = 3
_MOST_PARTS = 256


class Identity:
    """The digests of an object's parts. ``whole`` is the digest of them all.

    ``opaque`` says of parts what could not be read. ``kept`` are the values of these, and of parts that took long: while a part
    is the same object, it is not read again.
    """

    def __init__(
        self,
        parts: dict[str, bytes],
        opaque: dict[str, str] | None = None,
        kept: dict[str, Any] | None = None,
    ) -> None:
        self.parts = parts
        self.opaque = opaque or {}
        self.kept = kept or {}

    def whole(self) -> bytes:
        """Return 32 bytes that stand for all of it."""
        total = blake2b(_FORMAT, digest_size=32)
        for name in sorted(self.parts):
            total.update(name.encode() + b"=" + self.parts[name] + b"\n")
        return total.digest()

    def differing(self, other: Identity) -> list[str]:
        """Return the paths of the parts that differ."""
        names = sorted(self.parts.keys() | other.parts.keys())
        return [name for name in names if self.parts.get(name) != other.parts.get(name)]

    def as_begun(self, begun: Identity, changing: frozenset[str]) -> Identity:
        """Return it with the parts in ``changing``, and all below them, as they were when the dataset was cached."""

        def changes(name: str) -> bool:
            return any(name == each or name.startswith(each + ".") for each in changing if each)

        parts = {name: digest for name, digest in self.parts.items() if not changes(name)}
        parts |= {name: digest for name, digest in begun.parts.items() if changes(name)}
        if "" in changing:
            parts[""] = begun.parts[""]
        return Identity(parts, self.opaque, self.kept)


def of_dataset(dataset: Any, known: Identity | None = None) -> Identity:
    """Return the identity of a dataset. ``known`` is an earlier one of this dataset, in this process."""
    return _of(_leaves(dataset), known)


def of_function(function: Any, known: Identity | None = None) -> Identity:
    """Return the identity of a function, method, partial or callable object. ``known`` is an earlier one."""
    return _of(_leaves_of_function(function), known)


def continued(leaves: Callable[[Any], Iterator[tuple[str, Any]]], thing: Any, identity: Identity) -> Identity:
    """Return an identity that came from another process, for the copy of its thing in this one."""
    kept = {name: value for name, value in leaves(thing) if name in identity.opaque}
    return Identity(identity.parts, identity.opaque, kept)


def of_copy(dataset: Any, identity: Identity) -> Identity:
    """Return the identity of a dataset that was sent with it to this process: what cannot be read counts as the same."""
    return continued(_leaves, dataset, identity)


def of_function_copy(function: Any, identity: Identity) -> Identity:
    """Return the identity of a function that was sent with it to this process."""
    return continued(_leaves_of_function, function, identity)


def _of(leaves: Iterator[tuple[str, Any]], known: Identity | None) -> Identity:
    found = Identity({" versions": sources.versions()})
    for name, value in leaves:
        if known is not None and name in known.kept and known.kept[name] is value and name in known.parts:
            found.parts[name] = known.parts[name]
            found.kept[name] = value
            if name in known.opaque:
                found.opaque[name] = known.opaque[name]
            continue
        facts = digest_of(value)
        found.parts[name] = facts.digest
        if facts.opaque:
            found.opaque[name] = facts.opaque
        if facts.opaque or facts.large:
            found.kept[name] = value
    return found


def _leaves_of_function(function: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(function, MethodType):
        yield " function", function.__func__
        yield from _leaves(function.__self__)
    else:
        yield from _leaves(function)


def _leaves(thing: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of an object with their paths: its class as "", its attributes, and attributes of objects in these."""
    digest = Digest()
    if not digest.is_plain(type(thing)):
        yield "", thing
        return
    yield "", type(thing)
    met = {id(thing): ""}
    queue = [("", thing, 0)]
    parts = 0
    for path, obj, depth in queue:  # grows while it is iterated
        for name, value in attributes(obj):
            here = f"{path}.{name}" if path else str(name)
            parts += 1
            if id(value) in met:
                yield here, f"the same as {met[id(value)]}"
            elif (
                depth < _NESTED and parts < _MOST_PARTS and digest.is_plain(type(value)) and attributes(value)
            ):
                met[id(value)] = here
                queue.append((here, value, depth + 1))
                yield here, type(value)
            else:
                yield here, value
