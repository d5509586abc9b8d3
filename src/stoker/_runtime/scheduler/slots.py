"""The states of slots: free, busy, leased or retired. Pure bookkeeping: the transport owns the memory."""

from __future__ import annotations

import enum

from stoker._runtime.scheduler.types import SlotRef
from stoker.errors import IllegalMove


class SlotState(enum.Enum):
    """FREE → BUSY (with a task, or waiting for the consumer) → LEASED (the user's) → FREE; RETIRED is final."""

    FREE = "free"
    BUSY = "busy"
    LEASED = "leased"
    RETIRED = "retired"


_LEGAL: dict[SlotState, frozenset[SlotState]] = {
    SlotState.FREE: frozenset({SlotState.BUSY}),
    SlotState.BUSY: frozenset({SlotState.LEASED, SlotState.FREE, SlotState.RETIRED}),
    SlotState.LEASED: frozenset({SlotState.FREE, SlotState.RETIRED}),
    SlotState.RETIRED: frozenset(),
}


class SlotTable:
    """Hands out slots, the most recently used first because their pages are warm, and grows when none is free.

    A reference with an old generation is stale: giving it back has no effect. A slot that a worker holds (``hold``) is not reused
    until the worker releases it (``unhold``).
    """

    def __init__(self) -> None:
        self._states: list[SlotState] = []
        self._generations: list[int] = []
        self._free: list[int] = []
        self._holds: dict[int, set[int]] = {}
        self._let_go_later: set[int] = set()
        self._retired: list[int] = []
        self.leased = 0

    def __len__(self) -> int:
        return len(self._states)

    @property
    def live(self) -> int:
        """Slots that are not retired."""
        return sum(state is not SlotState.RETIRED for state in self._states)

    @property
    def held_by_workers(self) -> bool:
        """Whether a worker keeps a reference into some slot beyond its task."""
        return any(holder >= 0 for holders in self._holds.values() for holder in holders)

    def state(self, index: int) -> SlotState:
        """The state of one slot."""
        return self._states[index]

    def acquire(self) -> SlotRef:
        """A free slot, now busy, under a new generation."""
        if self._free:
            index = self._free.pop()
            self._states[index] = SlotState.BUSY
            generation = self._generations[index] + 1
            self._generations[index] = generation
            return SlotRef(index, generation)
        self._states.append(SlotState.BUSY)
        self._generations.append(1)
        return SlotRef(len(self._states) - 1, 1)

    def lease(self, ref: SlotRef) -> None:
        """Mark the batch in this slot as the user's."""
        if self._generations[ref.index] != ref.generation:
            raise IllegalMove(f"slot {ref.index} is leased under generation {ref.generation}, which is over")
        self._move(ref, SlotState.LEASED)
        self.leased += 1

    def is_leased(self, ref: SlotRef) -> bool:
        """Whether this batch lies in a leased slot. Only the end of the lease frees it."""
        return self._generations[ref.index] == ref.generation and self._states[ref.index] is SlotState.LEASED

    def release(self, ref: SlotRef) -> bool:
        """Give a slot back. False if the reference is stale or the slot is retired; then nothing happens."""
        index = ref.index
        if self._generations[index] != ref.generation:
            return False
        state = self._states[index]
        if state is SlotState.RETIRED or state is SlotState.FREE:
            return False
        if state is SlotState.LEASED:
            self.leased -= 1
        if self._holds and index in self._holds:
            self._let_go_later.add(index)
            self._states[index] = SlotState.BUSY
            return True
        self._states[index] = SlotState.FREE
        self._free.append(index)
        return True

    def retire(self, ref: SlotRef) -> None:
        """Never use this slot again: an unknown process may still write to it or read from it."""
        if self._generations[ref.index] != ref.generation or self._states[ref.index] is SlotState.RETIRED:
            return
        if self._states[ref.index] is SlotState.LEASED:
            self.leased -= 1
        self._move(ref, SlotState.RETIRED)
        self._retired.append(ref.index)
        self._let_go_later.discard(ref.index)

    def forget_retired(self) -> list[int]:
        """Slots retired since the last call. Their memory may be released."""
        retired, self._retired = self._retired, []
        return retired

    def hold_leased(self, holder: int) -> None:
        """Note a foreign fork: another process reads the leased slots too, until ``forget_worker(holder)``."""
        for index, state in enumerate(self._states):
            if state is SlotState.LEASED:
                self.hold(index, holder)

    def coldest(self, keep: int) -> list[int]:
        """Free slots beyond the ``keep`` most recently used ones. Their memory may be released."""
        return self._free[: max(0, len(self._free) - keep)]

    def hold(self, index: int, worker: int) -> None:
        """Note that a worker keeps a reference into this slot beyond its task."""
        self._holds.setdefault(index, set()).add(worker)

    def unhold(self, index: int, worker: int) -> None:
        """Note that the worker dropped that reference."""
        holders = self._holds.get(index)
        if holders is None:
            return
        holders.discard(worker)
        if holders:
            return
        del self._holds[index]
        if index in self._let_go_later:
            self._let_go_later.discard(index)
            self._states[index] = SlotState.FREE
            self._free.append(index)

    def forget_worker(self, worker: int) -> None:
        """Drop all references of a worker that is gone."""
        for index in [index for index, holders in self._holds.items() if worker in holders]:
            self.unhold(index, worker)

    def _move(self, ref: SlotRef, to: SlotState) -> None:
        state = self._states[ref.index]
        if to not in _LEGAL[state]:
            raise IllegalMove(
                f"slot {ref.index} (generation {ref.generation}) cannot go from {state.value} to {to.value}"
            )
        self._states[ref.index] = to
