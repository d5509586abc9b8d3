"""What the demo's act about the sample cache says of what was measured."""

from __future__ import annotations

import json
from typing import Any

from stoker._tools.demo.acts import cache
from stoker._tools.render.section import Chart


def told() -> dict[str, Any]:
    def use(hits: int, misses: int) -> dict[str, int]:
        return {
            "hits": hits, "misses": misses, "hit_bytes": 9, "stored_bytes": 4 << 20, "saved_ns": 10**9, "passed": 0,
        }  # fmt: skip

    ways = {
        cache.TORCH: {"rates": [100.0, 120.0], "cache": None},
        cache.STOKER: {"rates": [110.0, 130.0], "cache": None},
        cache.FLIPPED: {"rates": [100.0, 500.0, 520.0], "cache": use(128, 64)},
        cache.WHOLE: {"rates": [114.0, 1300.0, 1340.0], "cache": use(128, 64)},
    }
    return {"what": "JPEGs", "rows": 64, "row_ms": 4.0, "workers": 2, "ways": ways}


def test_the_first_epoch_with_a_cache_is_no_part_of_its_rate() -> None:
    ways = told()["ways"]
    assert cache.usual_rate(ways[cache.WHOLE]) == 1320.0
    assert cache.usual_rate(ways[cache.TORCH]) == 110.0


def test_the_lines_have_gains_filling_and_memory() -> None:
    lines = cache.lines(json.loads(json.dumps(told())))
    assert lines == [
        "JPEGs, from epoch 2 on: 12.0× torch's rate with samples cached,",
        "4.6× with flips anew, 1.1× without a cache; epoch 1 fills it at 0.95×",
        "4 MiB hold 64 samples, once for all workers",
    ]
    assert all(len(line) < 76 for line in lines)


def test_the_section_has_every_way_with_its_epochs() -> None:
    (section,) = cache.sections(told())
    (chart,) = [part for part in section.parts if isinstance(part, Chart)]
    assert len(chart.spec["data"]["values"]) == 2 + 2 + 3 + 3
    assert [row[0] for row in chart.table.rows] == list(cache.WAYS)
    assert chart.table.rows[3][1:] == ("114", "1,320", "12.0×", "67%", "4 MiB", "1.0 s")
    assert chart.table.rows[0][4:] == ("–", "–", "–")
