"""Packages that bring a subclass of torch's loader, or datasets for it: PyG, webdataset, Hugging Face datasets."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader

import stoker
from tests.frameworks.packages import needs
from tests.frameworks.processes import in_fork, on_ranks
from tests.frameworks.samples import flat

geometric = needs("torch_geometric.loader", "torch_geometric.data")
webdataset = needs("webdataset")
datasets = needs("datasets", "datasets.distributed")


def graphs(count: int) -> list[Any]:
    """Graphs of different sizes; the first node says which."""
    data = needs("torch_geometric.data")
    return [
        data.Data(
            x=torch.full((1 + each % 3, 1), float(each)), edge_index=torch.zeros(2, 1, dtype=torch.long)
        )
        for each in range(count)
    ]


def read_graphs(workers: int, shuffle: bool) -> tuple[list[Any], bool]:
    """Two epochs, and whether stoker made them."""
    torch.manual_seed(5)
    loader = geometric.DataLoader(graphs(10), batch_size=3, shuffle=shuffle, num_workers=workers)
    batches = [(batch.x.flatten().tolist(), batch.batch.tolist()) for _ in range(2) for batch in loader]
    return batches, isinstance(loader, stoker.DataLoader)


@pytest.mark.parametrize("workers", [0, 2])
def test_pygs_loader_is_stokers_under_run(workers: int) -> None:
    batches, ours = in_fork(read_graphs, workers, True, swapped=True)
    assert (batches, False) == in_fork(read_graphs, workers, True)
    assert ours


def read_nodes(workers: int, per_worker: bool) -> tuple[list[Any], bool, int]:
    """Two epochs of the base of PyG's NeighborLoader, whose own sampler needs a package that is compiled for it."""
    sampling = needs("torch_geometric.sampler")

    class Neighbours(sampling.BaseSampler):  # type: ignore[name-defined]
        edge_permutation = None

        def sample_from_nodes(self, given: Any) -> Any:
            nodes = torch.cat([given.node, (given.node + 1) % 20]).unique()
            none = torch.zeros(0, dtype=torch.long)
            return sampling.SamplerOutput(nodes, none, none, None, metadata=(given.input_id, given.time))

        def sample_from_edges(self, *_: Any) -> Any:
            raise NotImplementedError

    torch.manual_seed(5)
    graph = needs("torch_geometric.data").Data(
        x=torch.arange(20.0)[:, None], edge_index=torch.zeros(2, 0).long()
    )
    options = {"num_workers": workers, "filter_per_worker": per_worker}
    loader = geometric.NodeLoader(graph, Neighbours(), batch_size=6, shuffle=True, **options)
    batches = [(batch.x.flatten().tolist(), batch.batch_size) for _ in range(2) for batch in loader]
    with loader.enable_cpu_affinity([0]) if workers == 1 else contextlib.nullcontext():
        bound = sum(1 for _ in loader)
    return batches, isinstance(loader, stoker.DataLoader), bound


@pytest.mark.parametrize(("workers", "per_worker"), [(0, False), (1, False), (2, True)])
def test_pygs_node_loader_is_stokers_under_run(workers: int, per_worker: bool) -> None:
    batches, ours, bound = in_fork(read_nodes, workers, per_worker, swapped=True)
    assert (batches, False, bound) == in_fork(read_nodes, workers, per_worker)
    assert ours
    assert (len(batches), bound) == (8, 4)


def test_pygs_batches_resume() -> None:
    def legs() -> tuple[list[Any], list[Any]]:
        def make() -> Any:
            order = torch.Generator().manual_seed(2)
            collate = geometric.dataloader.Collater(graphs(10))
            data: Any = graphs(10)
            return stoker.DataLoader(
                data, batch_size=3, shuffle=True, generator=order, collate_fn=collate, num_workers=1
            )

        first = make()
        iterator = iter(first)
        seen = [next(iterator).x.flatten().tolist() for _ in range(2)]
        second = make()
        second.load_state_dict(first.state_dict())
        return [batch.x.flatten().tolist() for batch in make()], seen + [
            each.x.flatten().tolist() for each in second
        ]

    whole, joined = in_fork(legs)
    assert joined == whole


def shards(folder: Path) -> str:
    """Four tar files of six samples."""
    for number in range(4):
        with webdataset.TarWriter(str(folder / f"{number}.tar")) as sink:
            for each in range(6):
                sink.write({"__key__": f"{number:02}{each:02}", "txt": str(number * 6 + each)})
    return str(folder / "{0..3}.tar")


def read_shards(cls: Any, urls: str, workers: int) -> list[Any]:
    """Two epochs."""
    data = (
        webdataset.WebDataset(urls, shardshuffle=False).decode().to_tuple("txt").map(lambda row: int(row[0]))
    )
    loader = cls(data, batch_size=4, num_workers=workers)
    return [batch.tolist() for _ in range(2) for batch in loader]


@pytest.mark.parametrize("workers", [0, 2])
def test_webdataset(workers: int, tmp_path: Path) -> None:
    urls = shards(tmp_path)
    torchs = in_fork(read_shards, TorchLoader, urls, workers)
    assert in_fork(read_shards, stoker.DataLoader, urls, workers) == torchs
    assert sorted(flat(torchs)) == sorted([*range(24), *range(24)])
    made = in_fork(read_loader, urls, workers, swapped=True)
    assert made == in_fork(read_loader, urls, workers)


def read_loader(urls: str, workers: int) -> list[Any]:
    """webdataset's own loader, which builds torch's."""
    data = webdataset.WebDataset(urls, shardshuffle=False).decode().to_tuple("txt").map_tuple(int).batched(4)
    return [batch[0].tolist() for batch in webdataset.WebLoader(data, batch_size=None, num_workers=workers)]


def read_rows(cls: Any, stream: bool, workers: Any) -> list[Any]:
    """Two epochs of Hugging Face's datasets, with their torch format."""
    torch.manual_seed(5)
    made = datasets.Dataset.from_dict({"number": list(range(26))})
    data = made.to_iterable_dataset(num_shards=4) if stream else made.with_format("torch")
    order = {} if stream else {"shuffle": True}
    loader = cls(data, batch_size=4, num_workers=workers, **order)
    return [batch["number"].tolist() for _ in range(2) for batch in loader]


@pytest.mark.parametrize("workers", [0, 2, "auto"])
@pytest.mark.parametrize("stream", [False, True])
def test_hugging_face_datasets(stream: bool, workers: Any) -> None:
    ours = in_fork(read_rows, stoker.DataLoader, stream, workers)
    if workers == "auto":
        torchs = in_fork(read_rows, TorchLoader, stream, 0)
        assert ours == torchs if not stream else sorted(flat(ours)) == sorted(flat(torchs))
    else:
        assert ours == in_fork(read_rows, TorchLoader, stream, workers)


def resume_rows(stream: bool, state: Any) -> tuple[list[Any], Any]:
    """A rank's batches; the first leg ends after two, and gives its state."""
    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    made = datasets.Dataset.from_dict({"number": list(range(24))})
    if stream:
        data = made.to_iterable_dataset(num_shards=4)
        data = datasets.distributed.split_dataset_by_node(data, rank, ranks)
        loader: Any = stoker.DataLoader(data, batch_size=2, num_workers=1)
    else:
        loader = stoker.DataLoader(
            made, batch_size=2, sampler=stoker.ElasticDistributedSampler(made, seed=1), num_workers=1
        )
    if state is not None:
        loader.load_state_dict(state[rank] if stream else state[0])
    seen = []
    for batch in loader:
        seen.append(batch["number"].tolist())
        if state is None and len(seen) == 2:
            break
    found = loader.state_dict()
    torch.distributed.destroy_process_group()
    return seen, found


@pytest.mark.parametrize(("stream", "then"), [(False, 2), (False, 1), (True, 2)])
def test_hugging_face_datasets_resume_on_ranks(stream: bool, then: int) -> None:
    first = on_ranks(2, resume_rows, stream, None)
    rest = on_ranks(then, resume_rows, stream, [state for _, state in first])
    assert sorted(flat([batch for part, _ in (*first, *rest) for batch in part])) == list(range(24))
