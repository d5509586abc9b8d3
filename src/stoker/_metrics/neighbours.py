"""Other processes of the same job on this machine: what there is has to be divided by their number."""

from __future__ import annotations

from collections.abc import Mapping

_NAMES = (
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "SLURM_NTASKS_PER_NODE",
)
_MOST_RANKS = 4096


def local_ranks(environ: Mapping[str, str]) -> tuple[int, str]:
    """How many processes of the job run on this machine, and which variable says so; (1, "") where none does."""
    for name in _NAMES:
        value = environ.get(name, "")
        if len(value) < 10 and value.isascii() and value.isdigit() and 1 <= int(value) <= _MOST_RANKS:
            return int(value), name
    return 1, ""
