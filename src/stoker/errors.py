"""Every exception that stoker itself raises.

    Exception
    ├── StokerError                    base of what only stoker raises
    │   ├── IllegalMove                a scheduler event that cannot happen; carries the ticket's story
    │   ├── UnsendableError            a batch, sample or dataset part that cannot travel; names its path
    │   ├── Interrupted                next() after an exception came in the middle of the iterator's accounts
    │   └── LoaderClosed               next() on an iterator whose loader was closed
    ├── RuntimeError
    │   ├── WorkerDied                 a worker was killed or left, in torch's wording
    │   ├── WorkerTimeout              no batch within ``timeout``, in torch's wording
    │   ├── WorkerFailure              a worker's exception whose own type cannot travel
    │   └── SampleStopIteration        ``StopIteration`` came out of a dataset's ``__getitem__``
    └── WorkerTraceback                the ``__cause__`` of a re-raised exception: the worker's traceback as text

What torch raises as RuntimeError is a RuntimeError here too, so that existing ``except`` clauses keep working.
This module is a leaf: it imports nothing.
"""


class StokerError(Exception):
    """Base class of the errors that torch's loader has no counterpart for."""


class IllegalMove(StokerError):
    """The scheduler was told something impossible. A bug in stoker: the message holds the ticket's story."""


class UnsendableError(StokerError, TypeError):
    """Something cannot be serialised. The message names it by its path, for example ``batch['meta'][3]``."""


class Interrupted(StokerError):
    """An exception from outside (Ctrl-C, say) tore the accounts of this iterator. The loader is fine: start a new iterator."""


class LoaderClosed(StokerError):
    """The loader was closed while one of its iterators was still in use."""


class WorkerDied(RuntimeError):
    """A worker process ended without finishing its work and ``restarts`` did not allow another try."""


class WorkerTimeout(RuntimeError):
    """No batch arrived within ``timeout`` seconds."""


class WorkerFailure(RuntimeError):
    """Stands in for a worker's exception that could not be rebuilt in the parent."""


class SampleStopIteration(RuntimeError):
    """``__getitem__`` raised ``StopIteration``, which would otherwise end the epoch silently."""


class WorkerTraceback(Exception):
    """Carries the text of a traceback from a worker; used only as a ``__cause__``."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"
