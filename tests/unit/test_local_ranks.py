"""Which rank this is and which job it belongs to, by the environment."""

import pytest

from stoker._host.local_ranks import job, local_rank, local_ranks

TORCHRUN = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "host", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        (TORCHRUN, 1),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, 3),
        ({"SLURM_LOCALID": "0", "SLURM_NTASKS_PER_NODE": "8"}, 0),
        ({"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "2"}, None),
        ({"LOCAL_RANK": "-1", "LOCAL_WORLD_SIZE": "2"}, None),
        ({"LOCAL_RANK": "1"}, None),
        ({}, None),
    ],
)
def test_local_rank(environ: dict[str, str], rank: int | None) -> None:
    assert local_rank(environ) == rank


def test_jobs_are_told_apart_and_so_are_restarts_and_nodes() -> None:
    assert local_ranks(TORCHRUN) == (2, "LOCAL_WORLD_SIZE")
    assert job(TORCHRUN) == job({**TORCHRUN, "LOCAL_RANK": "0"})
    others = [{"MASTER_PORT": "29501"}, {"TORCHELASTIC_RESTART_COUNT": "1"}, {"GROUP_RANK": "1"}]
    assert len({job({**TORCHRUN, **each}) for each in [{}, *others]}) == 4
    assert job({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "host"}) is None
    assert job({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}) is not None
