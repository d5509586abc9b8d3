"""How local ranks agree on the number of workers without talking to each other: a page per job that all of them map."""

from __future__ import annotations

from collections.abc import Mapping

from stoker._core.tuning.window import Window


class Concord:
    """One loader's seat on its job's page. Called on the thread that iterates; never blocks, and never raises once it is joined.

    The one that ``leads`` runs the pilot on ``gathered`` windows and publishes; the others report and follow ``target``.
    """

    @classmethod
    def join(cls, environ: Mapping[str, str], key: str) -> Concord | None:
        """The seat of this rank's loader; None where the environment tells of no other local rank, or there can be no page.

        ``key`` tells the loaders of a process apart, and is the same in all ranks: the number of the loader in its process.
        """
        return None

    @property
    def leads(self) -> bool:
        """Whether this rank decides for all: the lowest local rank that is alive."""
        raise NotImplementedError

    def report(self, window: Window) -> None:
        """What this rank saw, for the one that leads."""
        raise NotImplementedError

    def gathered(self, window: Window) -> Window:
        """For the one that leads: its own window with the numbers of the rank that waits most."""
        raise NotImplementedError

    def publish(self, workers: int) -> None:
        """Let all ranks have so many workers from now on."""
        raise NotImplementedError

    def target(self) -> tuple[int, int] | None:
        """The last count that was published, with its sequence number, which only grows; None before the first."""
        raise NotImplementedError

    def close(self) -> None:
        """Give the seat up. Idempotent."""
        raise NotImplementedError
