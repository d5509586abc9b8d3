"""The dataset as an object: what it holds, by attribute path, and what it takes to send it.

Nothing of the user's was run to know this, but what pickling runs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unsendable:
    """A part that pickling refuses. ``path`` is what a user would write: "dataset.reader.handle"."""

    path: str
    kind: str
    """Name of its type: "BufferedReader", "generator"."""
    error: str
    """What the pickler said."""
    remedy: str
    anyone: bool
    """Whether stoker's own way of sending refuses it too; False: only plain pickle, which torch uses, does."""
    count: int = 1
    """How many of this kind lie in the same container; ``path`` is the first."""


@dataclass(frozen=True, slots=True)
class LocalCode:
    """A function or class that no other process can import, so plain pickle cannot send it."""

    path: str
    kind: str
    """ "lambda", "local function", "local class"; "function", "class" for one that its module does not have under its name."""
    name: str
    """Its qualified name: "make.<locals>.<lambda>"."""
    site: str
    """Where it is written: "data.py:31"; "" if unknown."""


@dataclass(frozen=True, slots=True)
class Handle:
    """Something open: a file, an archive, a database, a connection."""

    path: str
    kind: str
    """ "BufferedReader", "h5py.File"."""
    what: str
    """ "file", "output" (a file open for writing), "mapping", "socket", "pipe", "database", "archive", "video", "image"."""
    name: str
    """The file's name, or the like; "" when it does not tell."""
    sendable: bool
    """Whether plain pickle takes it."""
    dropped: bool
    """Whether the object that holds it leaves it out when it is pickled (``__getstate__``)."""
    count: int = 1


@dataclass(frozen=True, slots=True)
class HeldResource:
    """A lock, thread, pool or queue. ``live``: a lock that is locked now, a thread that runs, a pool with running threads."""

    path: str
    kind: str
    what: str
    """ "lock", "thread", "pool", "queue"."""
    live: bool
    dropped: bool
    threads: int = 0
    """Threads or processes of a pool that run now."""
    count: int = 1


@dataclass(frozen=True, slots=True)
class StoredGenerator:
    """A random generator that the dataset holds."""

    path: str
    kind: str
    """ "Generator", "RandomState", "Random", "torch.Generator"."""
    count: int = 1


@dataclass(frozen=True, slots=True)
class OddTensor:
    """A tensor that is on an accelerator or requires a gradient."""

    path: str
    device: str
    """ "cuda:0"; "cpu"."""
    requires_grad: bool
    leaf: bool
    nbytes: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class AttributeTotal:
    """What one attribute holds, all told. Counts and bytes of large containers are from a sample."""

    path: str
    kind: str
    """ "list of str", "dict of str to tuple", "ndarray float32 (1000, 3)", "tensor uint8 (60000, 28, 28)", "DataFrame"."""
    items: int
    """Of a container: how many it has; otherwise 1."""
    nbytes: int
    """Bytes in RAM."""
    objects: int
    """Python objects with a reference count of their own that reading may write to."""
    copied_bytes: int
    """The bytes of those objects: what a forked worker ends up copying when it reads all of them."""
    backing: str = "private"
    """ "private", "file" (np.memmap), "shared" (``stoker.share``, torch's share_memory_())."""
    about: bool = False
    """Whether the numbers are from a sample."""


@dataclass(frozen=True, slots=True)
class Preload:
    """By the source of the dataset's class: ``__init__`` fills an attribute with all data."""

    path: str
    """ "dataset.images"."""
    call: str
    """ "Image.open", "np.load", "np.random.rand"; the name of the other dataset."""
    how: str
    """ "loop" (a file after the other), "whole" (one file, all of it), "made" (no file), "dataset" (another one's samples)."""
    line: int
    file: str
    only_indexed: bool
    """Whether ``__getitem__`` reads no file itself."""


@dataclass(frozen=True, slots=True)
class ScanFacts:
    """All of it: the dataset, ``collate_fn`` and ``worker_init_fn``. Lists are bounded; ``left_out`` says by how much."""

    unsendable: tuple[Unsendable, ...] = ()
    local_code: tuple[LocalCode, ...] = ()
    handles: tuple[Handle, ...] = ()
    held: tuple[HeldResource, ...] = ()
    generators: tuple[StoredGenerator, ...] = ()
    odd_tensors: tuple[OddTensor, ...] = ()
    parts: tuple[AttributeTotal, ...] = ()
    """The largest first: by bytes, or by the bytes of Python objects."""
    preloads: tuple[Preload, ...] = ()
    tensors: int = 0
    """Tensors that would travel."""
    storages: int = 0
    """Distinct storages behind them, the empty ones left out: a descriptor each under spawn and forkserver."""
    tensor_bytes: int = 0
    most_tensors: str = ""
    """Path of what holds most of them."""
    array_bytes: int = 0
    """Bytes of arrays, tables and mapped files that would be pickled: plain pickle copies them for every worker."""
    nbytes: int = 0
    """RAM of all parts that are private to this process."""
    objects: int = 0
    copied_bytes: int = 0
    pickle_bytes: int | None = None
    """Bytes of the pickle beside tensors and arrays; None when it could not be made."""
    pickle_s: float | None = None
    """Seconds of CPU it takes to pickle that, once."""
    listed_indices: int | None = None
    """Indices that the loader's sampler puts into one list at every ``iter()``; None for one that does not, or is not torch's."""
    room_bytes: int | None = None
    """Memory that could still be taken when it was scanned."""
    about: bool = False
    """Whether something large was sampled: counts and bytes are about right, and a rare item may have been missed."""
    complete: bool = True
    """Whether everything was looked at, within the time and number of objects a scan may take."""
    left_out: int = 0
    """Findings beyond those that are listed."""
    seen: int = 0
    """Objects looked at."""
    scan_s: float = 0.0
