"""Some samples, made without workers in a child process."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from stoker._tools.sandbox.outcome import ProbeFailure as ProbeFailure

_FRAME = re.compile(r'File "(.+)", line (\d+), in (.+)')
_STANDARD = os.path.join(os.path.dirname(os.path.abspath(os.__file__)), "")


def collation(assumed: bool) -> str:
    """What made batches, in words: of a dataset that came without a loader nobody knows what will."""
    return "torch's default_collate" if assumed else "the loader's collate_fn"


def innermost(stack: str) -> str:
    """The last frame of a stack, that of a library only where there are no others: "__getitem__ (data.py:12)"."""
    every = _FRAME.findall(stack)
    theirs = [
        each for each in every if f"-packages{os.sep}" not in each[0] and not each[0].startswith(_STANDARD)
    ]
    found = theirs or every
    return f"{found[-1][2]} ({os.path.basename(found[-1][0])}:{found[-1][1]})" if found else ""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value of a sample that is no container: the first sample's, unless said otherwise."""

    path: str
    """From the sample: "[0]", "['image']", "['meta']['id']"; "" when the sample is the value."""
    kind: str
    """ "tensor", "array", "int", "float", "str", "bytes", "None", or the name of its type."""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    data_bytes: int = 0
    """What a copy of it takes."""
    storage_bytes: int = 0
    """What lies behind it: far more than ``data_bytes`` for a small view of something large."""
    device: str = "cpu"
    requires_grad: bool = False


@dataclass(frozen=True, slots=True)
class Storage:
    """Memory behind tensors of a batch: torch sends all of it, whatever the tensors show of it."""

    path: str
    """Of the first tensor in it, from the batch."""
    tensors: int
    used_bytes: int
    """What the tensors show."""
    storage_bytes: int


@dataclass(frozen=True, slots=True)
class Difference:
    """Samples that cannot be put into one batch: what differs, where, and two indices that show it."""

    what: str
    """ "shape", "dtype", "kind", "keys", "length", "none"."""
    path: str
    first: str
    """What the sample at ``first_index`` has there, in words: "(3, 224, 224)", "float32", "None"."""
    second: str
    first_index: int
    second_index: int
    collates: bool
    """Whether the loader's own ``collate_fn`` takes such samples together all the same."""

    def text(self, what: str) -> str:
        """Return in words ``what`` each of the two samples has."""
        first = f"sample{self.path} has {what} {self.first} at index {self.first_index}"
        return f"{first} and {self.second} at index {self.second_index}"

    @property
    def numbers(self) -> dict[str, int | str]:
        """For programs."""
        return {name: getattr(self, name) for name in ("first", "second", "first_index", "second_index")}


@dataclass(frozen=True, slots=True)
class SampleFailure:
    """A sample that raised, or a batch that could not be collated (``index`` is then its first)."""

    index: int
    kind: str
    """The exception's class: "FileNotFoundError"."""
    text: str
    stack: str
    """The frames in the user's files, innermost last."""
    picklable: bool
    collating: bool = False

    def __str__(self) -> str:
        """In a line: "FileNotFoundError: no such file: a.png, in __getitem__ (data.py:12)"."""
        said = f"{self.kind}: {self.text}" if self.text else self.kind
        where = innermost(self.stack)
        return f"{said}, in {where}" if where else said


@dataclass(frozen=True, slots=True)
class SampleFacts:
    """Indices are those of the dataset, in the sampler's order; of a stream: the number of the sample."""

    indices: tuple[int, ...]
    leaves: tuple[Leaf, ...]
    differences: tuple[Difference, ...] = ()
    failures: tuple[SampleFailure, ...] = ()
    probe_failures: tuple[ProbeFailure, ...] = ()
    nones: tuple[int, ...] = ()
    """Indices whose sample is None."""
    none_collates: bool = False
    """Whether the loader's ``collate_fn`` takes such a sample together with others."""
    sample_s: tuple[float, ...] = ()
    """Wall seconds of each sample that was made."""
    cpu_s: tuple[float, ...] = ()
    collate_s: tuple[float, ...] = ()
    batch_bytes: int = 0
    """Bytes of tensors in a whole batch."""
    batch_tensors: int = 0
    """Tensors in it."""
    batch_leaves: tuple[Leaf, ...] = ()
    """What is in the batch that was collated: of torch's own collation no views, of a ``collate_fn`` maybe."""
    batch_storages: tuple[Storage, ...] = ()
    """Those of which tensors of that batch show a part only."""
    batch_rows: int = 0
    """Samples in it: fewer than ``batch_size`` when there was no time for more."""
    uses_accelerator: bool = False
    """Whether making a sample initialised an accelerator."""
    unsendable: tuple[str, ...] = ()
    """What in a batch cannot be pickled: "batch['rows'] (generator): cannot pickle 'generator' object"."""
