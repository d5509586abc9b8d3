"""``stoker report`` on files, whole and broken."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stoker._record import journal
from stoker.cli.main import main
from tests.unit.profiled import Profiled
from tests.unit.records import loader, run, steps

WAITS_S = {("fetch", 0, "io"): 0.9}


def _report(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


def test_a_record_becomes_a_screen_or_json(tmp_path):
    path = tmp_path / "run.json"
    journal.write(run(loader(WAITS_S)), path)
    shown = _report(path, "--price-per-hour", "3", "--watts", "300")
    assert shown.exit_code == 0
    assert shown.output.startswith("Verdict   The training loop waits 47% of the time")
    assert "kWh per month at 300 W" in shown.output
    data = json.loads(_report(path, "--json").output)
    assert data["loaders"][0]["causes"]["cause"] == "io"


@pytest.mark.parametrize("option", ["--price-per-hour", "--watts"])
@pytest.mark.parametrize("value", ["nan", "inf", "1e400"])
def test_a_price_that_is_not_finite_is_refused(option: str, value: str, tmp_path: Path) -> None:
    """JSON has no such numbers, and a report none to show."""
    path = tmp_path / "run.json"
    journal.write(run(loader(WAITS_S)), path)
    for command, argument in (("report", str(path)), ("profile", "train.py")):
        refused = CliRunner().invoke(main, [command, option, value, argument])
        assert refused.exit_code == 2
        assert "is no finite number" in refused.output


def test_a_folder_and_several_files_are_one_run(tmp_path):
    for place in range(2):
        journal.write(run(loader(WAITS_S, name=f"loader {place}")), tmp_path / f"{place}.jsonl")
    for paths in ([tmp_path], sorted(tmp_path.iterdir())):
        data = json.loads(_report(*paths, "--json").output)
        assert {each["name"] for each in data["loaders"]} == {"loader 0", "loader 1"}


def test_what_cannot_be_read_is_one_line_and_code_2(tmp_path):
    newer = run(loader(WAITS_S)).as_dict() | {"version": 99}
    (tmp_path / "newer.json").write_text(json.dumps(newer))
    (tmp_path / "other.json").write_text('{"a": 1}')
    (tmp_path / "broken.json").write_text('{"format": "stoker-run", ')
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.json").write_text("")
    (tmp_path / "damaged.json").write_text('{"format": "stoker-run", "version": 1, "loaders": [{}]}')
    odd = run(loader(WAITS_S)).as_dict()
    odd["loaders"][0]["totals"]["wait_ns"] = None
    (tmp_path / "odd.json").write_text(json.dumps(odd))
    said = {}
    for name in (
        "odd.json",
        "newer.json",
        "other.json",
        "broken.json",
        "bytes.json",
        "empty",
        "empty.json",
        "damaged.json",
        "none.json",
    ):
        result = _report(tmp_path / name)
        assert result.exit_code == 2, name
        assert result.stdout == ""
        assert len(result.stderr.splitlines()) == 1, result.stderr
        said[name] = result.stderr
        assert name in result.stderr
    assert "version 99" in said["newer.json"]
    assert "wait_ns of a Totals is None" in said["odd.json"]
    assert "upgrade stoker" in said["newer.json"]
    assert "no format 'stoker-run'" in said["other.json"]
    assert "damaged" in said["damaged.json"]
    assert "No such file" in said["none.json"]


def test_a_trace_is_written_beside_and_not_over_another(tmp_path):
    path, trace = tmp_path / "run.json", tmp_path / "trace.json"
    journal.write(run(loader(WAITS_S, steps=steps(5))), path)
    assert _report(path, "--trace", trace).exit_code == 0
    written = trace.read_text()
    assert json.loads(written)["traceEvents"]
    again = _report(path, "--trace", trace)
    assert again.exit_code == 2
    assert "--force" in again.stderr
    assert trace.read_text() == written
    assert _report(path, "--trace", trace, "--force").exit_code == 0
    assert "cannot write" in _report(path, "--trace", tmp_path / "no" / "where.json").stderr


def test_a_record_is_written_as_a_trace_and_never_over_another_file(tmp_path):
    path, out = tmp_path / "run.json", tmp_path / "trace.json.gz"
    journal.write(run(loader(WAITS_S, steps=steps(5))), path)
    written = _report(path, "--trace", out)
    assert written.exit_code == 0
    assert "ui.perfetto.dev" in written.stderr
    assert written.stdout.startswith("Verdict")
    before = out.read_bytes()
    refused = _report(path, "--trace", out)
    assert refused.exit_code == 2
    assert refused.stderr == f"stoker report: {out} exists: pass --force to write over it\n"
    assert out.read_bytes() == before
    profiled = Profiled()
    with profiled.step():
        profiled.next(8)
    theirs = profiled.write(tmp_path / "theirs.json")
    merged = _report(path, "--trace", out, "--merge", theirs, "--force")
    assert merged.exit_code == 0
    assert "of another run?" in merged.stderr
    both = json.loads(gzip.decompress(out.read_bytes()))
    assert both["traceEvents"][: len(profiled.events)] == profiled.events
    assert _report(path, "--merge", theirs).exit_code == 2
    assert _report(theirs, "--trace", out).exit_code == 2
    assert _report(path, "--trace", tmp_path / "none" / "a.json").exit_code == 2


def test_a_profilers_trace_gets_the_same_screen(tmp_path):
    profiled = Profiled()
    for _ in range(5):
        with profiled.step():
            profiled.next(8)
            profiled.launch(2)
    path = profiled.write(tmp_path / "a.pt.trace.json.gz")
    for asked in (path, tmp_path):
        shown = _report(asked, "--price-per-hour", "3")
        assert shown.exit_code == 0
        assert shown.output.startswith("Verdict   The device waits for data 80% of the time.")
        assert "per month at 3 an hour" in shown.output
    data = json.loads(_report(path, path, "--json").output)
    assert data["format"] == "stoker-trace-verdict"
    journal.write(run(loader(WAITS_S)), tmp_path / "run.json")
    mixed = _report(path, tmp_path / "run.json")
    assert (mixed.exit_code, mixed.stdout, mixed.stderr.count("\n")) == (2, "", 1)
    path.write_bytes(gzip.compress(b'{"traceEvents": []}'))
    empty = _report(path)
    assert (empty.exit_code, empty.stdout, empty.stderr.count("\n")) == (2, "", 1)
