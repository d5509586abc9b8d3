"""Workers, executors, start methods and deaths change nothing in what is delivered."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.resume import datasets
from tests.resume.recipes import KEYED, process_ways, recipes, thread_ways
from tests.resume.runs import Recipe, Way, assert_batches, reference, uninterrupted

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


@settings(max_examples=25, derandomize=True)
@given(recipe=recipes(KEYED), way=thread_ways())
def test_threads_change_nothing(recipe: Recipe, way: Way) -> None:
    assert_batches(reference(recipe), uninterrupted(recipe, way), ordered=way.in_order)


@settings(max_examples=25, derandomize=True)
@given(data=st.data())
def test_processes_and_their_deaths_change_nothing(data: st.DataObject) -> None:
    recipe = data.draw(recipes())
    way = data.draw(process_ways(recipe.length))
    with TemporaryDirectory() as folder:
        got = uninterrupted(recipe, way, Path(folder))
    assert_batches(reference(recipe), got, ordered=way.in_order)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_started_processes_and_their_deaths_change_nothing(method: str, tmp_path: Path) -> None:
    """Two epochs, with a death in the first batch, that is split, and one later."""
    recipe = Recipe("augmented", length=90, batch_size=40)
    way = Way(workers=2, method=method, split=True, persistent=True, deaths=(3, 88))
    assert_batches(reference(recipe, epochs=2), uninterrupted(recipe, way, tmp_path, epochs=2))
    assert datasets.Deaths(tmp_path, ()).happened() == {3, 88}


@pytest.mark.parametrize("data", ["augmented", "keyed"])
def test_by_sample_the_batch_size_changes_nothing_either(data: str) -> None:
    """A batch of one row and batches of many rows hold the same rows."""
    singly = reference(Recipe(data, length=50, rng="sample", batch_size=1))
    batches = reference(Recipe(data, length=50, rng="sample", batch_size=17))
    rows = [
        {name: batch[name][row : row + 1] for name in ("index", "python", "numpy")}
        for batch in batches
        for row in range(len(batch["index"]))
    ]
    assert_batches([{name: batch[name] for name in ("index", "python", "numpy")} for batch in singly], rows)
