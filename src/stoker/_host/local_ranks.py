"""Counts the other processes of the same job on this machine, which share its CPUs and memory."""

from __future__ import annotations

from collections.abc import Mapping

_NAMES = (
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "SLURM_NTASKS_PER_NODE",
)
_PLACES = (
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "SLURM_LOCALID",
)
_JOBS = (
    ("MASTER_ADDR", "MASTER_PORT"),
    ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ("PMIX_NAMESPACE",),
)
"""What all ranks of one job have in common, and no two jobs on a machine have at the same time."""
_MORE = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "GROUP_RANK", "NODE_RANK", "SLURM_NODEID")
"""Restarts are jobs of their own; so are nodes that somebody plays on one machine."""
_MOST_RANKS = 4096


def local_ranks(environ: Mapping[str, str]) -> tuple[int, str]:
    """How many processes of the job run on this machine, and which variable says so; (1, "") where none does."""
    for name in _NAMES:
        value = environ.get(name, "")
        if len(value) < 10 and value.isascii() and value.isdigit() and 1 <= int(value) <= _MOST_RANKS:
            return int(value), name
    return 1, ""


def local_rank(environ: Mapping[str, str]) -> int | None:
    """Which of the job's processes on this machine this one is; None if unknown, or if it contradicts their number."""
    ranks, _ = local_ranks(environ)
    for name in _PLACES:
        value = environ.get(name, "")
        if len(value) < 10 and value.isascii() and value.isdigit():
            return int(value) if int(value) < ranks else None
    return None


def job(environ: Mapping[str, str]) -> str | None:
    """The same text in all processes of a job on this machine; None where the environment does not tell jobs apart."""
    for names in _JOBS:
        if all(environ.get(name) for name in names):
            return "\n".join(f"{name}={environ.get(name, '')}" for name in (*names, *_MORE))
    return None
