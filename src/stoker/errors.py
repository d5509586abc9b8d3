"""Every exception that stoker itself raises.

    Exception (all but WorkerStalled and WorkerTraceback are also Coded)
    ├── StokerError                    base of what only stoker raises
    │   ├── IllegalMove                a scheduler event that cannot happen; carries the ticket's story
    │   ├── UnsendableError            a part of a batch, sample or dataset that cannot be pickled; names its path
    │   │   └── CannotShare            an item that ``stoker.share`` cannot pack
    │   ├── SharedReadOnly             a write to something that ``stoker.share`` made (a TypeError and a ValueError)
    │   ├── NoGoodSample               ``on_bad_sample="replace"`` found no replacement for a bad sample
    │   ├── RecordError                a run record that cannot be read: damaged, newer, or something else
    │   ├── TraceError                 a profiler's trace that cannot be read, or shows nothing to judge
    │   ├── TargetError                the target of ``stoker doctor`` or ``stoker tune`` cannot be loaded
    │   ├── CacheRefused               ``stoker.cache`` cannot keep this; the message says what to do (also a ValueError)
    │   │   └── RandomSamples          samples that are not the same each time; names what draws
    │   ├── CacheMismatch              a kept sample is not what the dataset makes now
    │   ├── Interrupted                next() after an exception from outside may have lost a batch
    │   └── LoaderClosed               next() on an iterator whose loader was closed
    ├── RuntimeError
    │   ├── WorkerDied                 a worker was killed or exited, with torch's words
    │   ├── ClusterError               a Ray cluster cannot be had, or was lost
    │   ├── DeviceError                ``device=`` cannot be had, or a batch cannot go there
    │   ├── WorkerTimeout              no batch within ``timeout``, with torch's words
    │   ├── WorkerFailure              a worker's exception whose own type cannot be pickled
    │   ├── SampleStopIteration        ``StopIteration`` came out of a dataset's ``__getitem__``
    │   └── StartRefused               the system refused a worker: memory, processes or descriptors (also an OSError)
    ├── RuntimeWarning
    │   └── WorkerStalled              a batch takes far longer than batches took so far; says what each worker is doing
    └── WorkerTraceback                the ``__cause__`` of a re-raised exception: the worker's traceback as text

What torch raises as RuntimeError is a RuntimeError here too, so that existing ``except`` clauses keep working.

Each carries the code of its page in ``code`` ("STK801": its class's, or a closer one of its own), and a note that says so below
the message: the message itself is torch's where torch has one. This module is a leaf: it imports nothing of stoker.
"""

import errno
from typing import Any, Self, TypeVar

_NOTE = '{0}: the command "stoker explain {0}" has causes and fixes'
_Error = TypeVar("_Error", bound=BaseException)


def coded(error: _Error, code: str) -> _Error:
    """The error, with a note that names this code instead of one it carried before; on an exception of ours ``code`` is set too.

    Idempotent, so that an error that travels between processes does not collect notes.
    """
    if isinstance(error, Coded):
        error.code = code
    notes = [note for note in getattr(error, "__notes__", ()) if not _is_ours(note)]
    error.__notes__ = [*notes, _NOTE.format(code)]
    return error


def without_notes(text: str) -> str:
    """A printed traceback without the lines that name codes: for one that is shown below an exception which has them itself."""
    return "".join(line for line in text.splitlines(keepends=True) if not _is_ours(line.strip()))


def _is_ours(note: object) -> bool:
    return isinstance(note, str) and note == _NOTE.format(note[:6])


class Coded(BaseException):
    """What carries a code. The note is made with the exception, whatever its constructor takes."""

    code = "STK901"

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        error = super().__new__(cls, *args, **kwargs)
        error.add_note(_NOTE.format(cls.code))
        return error


class StokerError(Coded, Exception):
    """Base class of errors that torch's loader does not have."""


class IllegalMove(StokerError):
    """The scheduler received an impossible event. This is a bug in stoker; the message has the ticket's story."""


class UnsendableError(StokerError, TypeError):
    """Something cannot be serialised. The message names it by its path, for example ``batch['meta'][3]``."""

    code = "STK101"


class CannotShare(UnsendableError):
    """An item cannot be packed. ``steps`` lead to it from the container: a row, then keys or places within the item."""

    code = "STK905"

    def __init__(self, text: str, steps: tuple[object, ...] = ()) -> None:
        super().__init__(text)
        self.steps = steps

    @property
    def path(self) -> str:
        """The steps as they would be written behind the container's name."""
        return "".join(f"[{step!r}]" for step in self.steps)


class SharedReadOnly(StokerError, TypeError, ValueError):
    """The code tried to change shared data. The message says how to get a private copy."""

    code = "STK904"


class NoGoodSample(StokerError, RuntimeError):
    """A bad sample has no replacement, because every candidate is bad too."""

    code = "STK906"


class RecordError(StokerError, ValueError):
    """A file or dict is not a run record that this version can read. The message says what it is and what to do."""

    code = "STK907"


class TraceError(StokerError, ValueError):
    """A file is not a trace of a profiler, or contains nothing to judge. The message is one line."""

    code = "STK908"


class TargetError(StokerError):
    """The target cannot be loaded. The message is one line. ``stack`` has the frames of the user's own files, ``output`` the
    last output of their code.
    """

    code = "STK910"

    def __init__(self, text: str, stack: str = "", output: str = "") -> None:
        super().__init__(text)
        self.stack = stack
        self.output = output


class CacheRefused(StokerError, ValueError):
    """``stoker.cache`` or ``stoker.cached`` cannot keep this. The message says why, with the numbers, and what to do."""

    code = "STK911"


class RandomSamples(CacheRefused):
    """Samples that a cache should keep are not the same each time. ``draws`` names what draws random numbers."""

    code = "STK912"

    def __init__(self, text: str, draws: list[str] | None = None) -> None:
        super().__init__(text)
        self.draws = draws or []


class CacheMismatch(StokerError, RuntimeError):
    """``verify=`` made a kept sample again, and it differs. The message names the index."""

    code = "STK913"


class Interrupted(StokerError):
    """An exception from outside, such as Ctrl-C, may have lost a batch of this iterator. Call ``iter(loader)`` again."""

    code = "STK903"


class LoaderClosed(StokerError):
    """The loader was closed while one of its iterators was still in use."""

    code = "STK902"


class WorkerDied(Coded, RuntimeError):
    """A worker process ended without finishing its work and ``restarts`` did not allow another try."""

    code = "STK801"


class DeviceError(Coded, RuntimeError):
    """The device of ``device=`` cannot be had, or a batch cannot go there. The message says why and what to do."""

    code = "STK311"


class ClusterError(Coded, RuntimeError):
    """A Ray cluster cannot be had, refuses what the loader asks for, or was lost. The message says what to do."""

    code = "STK321"


class WorkerTimeout(Coded, RuntimeError):
    """No batch arrived within ``timeout`` seconds."""

    code = "STK803"


class WorkerFailure(Coded, RuntimeError):
    """Stands in for a worker's exception that could not be rebuilt in the parent."""

    code = "STK410"


class SampleStopIteration(Coded, RuntimeError):
    """``__getitem__`` raised ``StopIteration``, which would otherwise end the epoch silently."""

    code = "STK405"


_REFUSALS: dict[object, str] = {
    errno.ENOMEM: "STK208",
    errno.EMFILE: "STK202",
    errno.ENFILE: "STK202",
    errno.ENOENT: "STK205",
}
"""By error number: what a worker could not have. Anything else is STK809."""


class StartRefused(Coded, RuntimeError, OSError):
    """The system refused what a worker needs to start. ``errno`` says what; the message has the numbers and the remedies."""

    code = "STK809"

    # Both bases bring a constructor, and only OSError's keeps the error number.
    def __new__(cls, *args: object) -> "StartRefused":
        error = OSError.__new__(cls, *args)
        return coded(error, _REFUSALS.get(args[0] if args else None, cls.code))

    def __init__(self, *args: object) -> None:
        OSError.__init__(self, *args)

    def __str__(self) -> str:
        return str(self.strerror)


class WorkerStalled(RuntimeWarning):
    """A batch takes unusually long. The message names the worker and the sample, with its Python stack."""

    code = "STK804"


class WorkerTraceback(Exception):
    """Carries the text of a traceback from a worker; used only as a ``__cause__``."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"
