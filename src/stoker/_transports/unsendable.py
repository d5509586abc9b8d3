"""Finding what in a batch cannot be pickled."""

from __future__ import annotations

from stoker.errors import UnsendableError


def unsendable(obj: object, error: BaseException) -> UnsendableError:
    """The error to raise for a batch that neither pickle nor cloudpickle takes."""
    return UnsendableError(f"batch: {type(obj).__name__}: {error}")
