"""Compares the counts of a loader's state with each other, with its batch size and with its receipt.

A state that was edited, or put together from two, goes on in silence with other samples. The checks hold for every state that a
loader makes: where the loader cannot vouch for a count itself, ``vouched`` leaves it out, and nothing is compared with it.
"""

from __future__ import annotations

import reprlib
from dataclasses import replace
from typing import TYPE_CHECKING

from stoker._receipt.loader_receipts import StateReceipt

if TYPE_CHECKING:
    from stoker._runtime.checkpoint.state_format import SavedState

_TORCH = "torch.utils.data."
_BATCH_SAMPLER = "torch.utils.data.sampler.BatchSampler"


def contradiction(saved: SavedState) -> str:
    """What differs, in words; empty if nothing does."""
    if saved.facts.kind == "iterable":
        return _receipt_contradiction(saved)
    return _count_contradiction(saved) or _size_contradiction(saved) or _receipt_contradiction(saved)


def vouched(saved: SavedState) -> SavedState:
    """A state that is being made, with what its counts can be compared with when it is loaded.

    ``resized_at`` is left out where batches were of other sizes than it says: the user may change that of a batch sampler at any
    time. A receipt that counts more than was handed over is left out too: the rest of the epoch does without it.
    """
    said = StateReceipt.parse(saved.receipt)
    missing = -1 if said is None else saved.batches + len(saved.ahead) - said.before.batches
    saved = replace(
        saved,
        resized_at=None if _size_contradiction(saved) else saved.resized_at,
        not_in_receipt=missing if missing >= 0 else None,
    )
    return replace(saved, receipt=None) if _receipt_contradiction(saved) else saved


def _count_contradiction(saved: SavedState) -> str:
    """Compare batches, samples and the length of the epoch, where all batches have samples.

    Nothing is said of the size of batches. An elastic sampler that was resumed counts its samples anew.
    """
    batches, samples, facts = saved.batches, saved.samples, saved.facts
    if facts.batch_size is None or facts.elastic or saved.sampler_state is not None:
        return ""
    if batches > samples or (samples and not batches):
        return f"{batches} 'batches' cannot have {samples} 'samples'"
    length = _sure_length(saved)
    if length is None:
        return ""
    if samples + len(saved.ahead) > length or max(saved.ahead, default=0) >= max(length, 1):
        return (
            f"{samples} 'samples' and {len(saved.ahead)} batches 'ahead' were handed over, the last with number "
            f"{max((batches - 1, *saved.ahead))}, of the {length} that its sampler had"
        )
    return ""


def _size_contradiction(saved: SavedState) -> str:
    """Compare with the batch size since it last changed. torch's BatchSampler fills all batches but the last."""
    facts, start = saved.facts, saved.resized_at
    size = facts.batch_size
    if not size or start is None or facts.elastic or facts.sampler[:1] != (_BATCH_SAMPLER,):
        return ""
    length = _sure_length(saved)
    batches, samples = saved.batches - start[0], saved.samples - start[1]
    room = batches * size
    is_last = room - size < samples < room and length in (None, saved.samples)
    if batches < 0 or (samples != room and not is_last):
        since = f" after {start[0]} that had {start[1]}" if any(start) else ""
        of = "" if length is None else f", of the {length} that its sampler had"
        return f"{saved.batches} 'batches' of {size}{since} cannot have {saved.samples} 'samples'{of}"
    if length is not None and saved.ahead:
        number = start[0] - (start[1] - length) // size
        if max(saved.ahead) >= number:
            return f"'ahead' names batch {max(saved.ahead)}, and the epoch has {number} batches"
    return ""


def _receipt_contradiction(saved: SavedState) -> str:
    """Compare with the receipt. It has no samples that were bad, or were handed over on another rank."""
    said = StateReceipt.parse(saved.receipt)
    if said is None:
        return ""
    counted, missing, facts = said.before, saved.not_in_receipt, saved.facts
    given = saved.batches + len(saved.ahead)
    fits = counted.batches <= given if missing is None else counted.batches + missing == given
    in_rows = facts.kind == "map" and facts.batch_size is not None and not facts.elastic
    if fits and in_rows and not saved.ahead:
        fits = counted.samples <= saved.samples
    if fits:
        return ""
    ahead = f" and {len(saved.ahead)} 'ahead'" if saved.ahead else ""
    less = f" and leaves out {missing}" if missing else ""
    return (
        f"it has {saved.batches} 'batches' with {saved.samples} 'samples'{ahead}, and its 'receipt' has "
        f"{reprlib.repr(counted.batches)} with {reprlib.repr(counted.samples)}{less}"
    )


def _sure_length(saved: SavedState) -> int | None:
    """How many samples the epoch has. What a sampler of the user's says of its length may be wrong."""
    facts = saved.facts
    return facts.sampler_length if all(name.startswith(_TORCH) for name in facts.sampler) else None
