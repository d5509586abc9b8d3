"""What people see of a diagnosis, and the forms of it for other tools."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from stoker._tools.doctor.catalogue import catalogue
from stoker._tools.doctor.diagnosis import Skip
from stoker._tools.doctor.explain import explain
from stoker._tools.doctor.forms import data, github, markdown, sarif, screen
from tests.unit.doctor.diagnoses import ARGUMENT, BIG, NOTE, SMALL, diagnosis, target


def test_a_screen_says_what_how_bad_where_and_what_to_type():
    known = {"target": target("train.py", 3)}
    text = screen.render(diagnosis(BIG, ARGUMENT, SMALL, NOTE, facts=known), target="train.py:train")
    lines = text.splitlines()
    assert lines[0] == "Examined  train.py:train (a DataLoader of torch's)"
    assert lines[1].startswith("Verdict   3 problems, the worst: Shared memory is small (STK201, high)")
    assert "high      STK201  Shared memory is small" in lines
    assert "          Where   /dev/shm" in lines
    assert "                  and that is little" in lines
    assert "          Fix     pin_memory=True  →  pin_memory=False   in train.py:3" in lines
    assert "          Gain    about −12% of the step's time: measured over 20 batches" in lines
    assert (
        "          stoker  Its loader prevents this. Batches travel in memory of their own (memfd)," in text
    )
    assert any(line.startswith("note      STK704") for line in lines)
    assert "Passed    2 checks, 2 skipped" in lines
    assert "          Skipped 2: the dataset is not iterable-style" in lines
    assert lines[-2].startswith("Next      stoker explain STK201 ")
    assert lines[-1].startswith("          stoker doctor train.py:train --fix ")
    assert not any(line != line.rstrip() for line in lines)


@pytest.mark.parametrize("width", [80, 100])
def test_a_screen_keeps_to_its_width_and_tells_many_low_findings_in_a_line_each(width):
    low = [replace(SMALL, evidence=f"{number} tensors " * 40) for number in range(9)]
    long = replace(BIG, evidence="word " * 100 + "x" * 300, advice="do " * 90)
    text = screen.render(diagnosis(long, *low), width)
    assert max(map(len, text.splitlines())) <= width
    assert len([line for line in text.splitlines() if line.startswith("low ")]) == 9
    assert len(text.splitlines()) < 45
    assert len(screen.render(diagnosis(long, *low), width, verbose=True).splitlines()) > 60


def test_nothing_found_and_stopped():
    text = screen.render(diagnosis(subject="this machine", interrupted=True))
    assert "Verdict   nothing found until then" in text
    assert "Stopped" in text
    assert text.splitlines()[-1].startswith("Next      stoker doctor train.py:dataset")
    assert screen.headline(diagnosis(BIG)) == "1 problem: Shared memory is small (STK201, high)"
    assert screen.headline(diagnosis(NOTE)) == "nothing found, 1 remark"


def test_many_reasons_for_skips_are_told_when_asked_for():
    many = diagnosis(skipped=tuple(Skip(f"STK50{n}", f"reason {n}") for n in range(6)))
    assert "reason 1" not in screen.render(many)
    assert "--verbose" in screen.render(many)
    assert "Skipped STK501: reason 1" in screen.render(many, verbose=True)
    assert "Found nothing: STK101, STK102" in screen.render(many, verbose=True)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class _Bytes(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="ascii")


def test_colour_only_where_it_is_wanted(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    shown = _Terminal()
    screen.show(diagnosis(BIG), shown)
    assert "\x1b[31m" in shown.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = _Terminal()
    screen.show(diagnosis(BIG), plain)
    assert "\x1b[31m" not in plain.getvalue()
    ascii_only = _Bytes()
    screen.show(diagnosis(ARGUMENT), ascii_only)
    ascii_only.flush()
    written = ascii_only.buffer.getvalue()  # type: ignore[attr-defined]
    assert b"pin_memory=True  ->  pin_memory=False" in written
    ascii_only.close()


def test_json_has_everything_for_programs():
    read = json.loads(data.render(diagnosis(BIG, ARGUMENT, facts={"target": target("train.py", 3)})))
    assert (read["format"], read["version"], read["worst"]) == ("stoker-diagnosis", 1, "high")
    first, second = read["findings"]
    assert first["numbers"] == {"shm_bytes": 64 << 20, "share": None}
    assert (first["name"], first["file"]) == ("small-shm", None)
    assert first["prevented"].startswith("Batches travel")
    assert second["edit"] == {
        "after": "pin_memory=False",
        "before": "pin_memory=True",
        "site": "train.py:3",
        "kind": "",
    }
    assert (second["file"], second["line"], second["gain"]["share"]) == ("train.py", 3, 0.12)
    assert read["skipped"][0] == {"code": "STK502", "reason": "the dataset is not iterable-style"}
    assert read["facts"]["scan"] == {"missing": "no time"}
    assert read["facts"]["target"]["loader"]["num_workers"] == 4
    assert len(read["facts"]["target"]["source"]) < 500


def require_sarif(document: object) -> None:
    """What SARIF 2.1.0 requires of the properties that are used here."""
    assert isinstance(document, dict)
    assert document["version"] == "2.1.0"
    assert document["$schema"].endswith("sarif-2.1.0.json")
    for run in document["runs"]:
        driver = run["tool"]["driver"]
        assert isinstance(driver["name"], str)
        ids = [rule["id"] for rule in driver["rules"]]
        assert len(set(ids)) == len(ids)
        for rule in driver["rules"]:
            for name in ("shortDescription", "fullDescription", "help"):
                assert rule[name]["text"].strip()
            assert rule["defaultConfiguration"]["level"] in ("none", "note", "warning", "error")
        for invocation in run["invocations"]:
            assert isinstance(invocation["executionSuccessful"], bool)
            for told in invocation["toolExecutionNotifications"]:
                assert told["message"]["text"]
        for result in run["results"]:
            assert result["message"]["text"]
            assert result["level"] in ("none", "note", "warning", "error")
            if "ruleIndex" in result:
                assert ids[result["ruleIndex"]] == result["ruleId"]
            assert all(isinstance(each, str) for each in result["partialFingerprints"].values())
            for place in result["locations"]:
                physical = place["physicalLocation"]
                assert re.fullmatch(r"[^\s\\]+", physical["artifactLocation"]["uri"])
                assert physical["region"]["startLine"] >= 1


def test_sarif_has_the_required_shape_and_all_checks_as_rules():
    found = diagnosis(BIG, ARGUMENT, SMALL, facts={"target": target("my train.py", 3)})
    found = replace(found, findings=(*found.findings, replace(SMALL, code="STK999", where="dataset.x")))
    document = json.loads(sarif.render(found))
    require_sarif(document)
    run = document["runs"][0]
    assert [each["id"] for each in run["tool"]["driver"]["rules"]] == [each.code for each in catalogue()]
    assert [each["level"] for each in run["results"]] == ["error", "warning", "note", "note"]
    assert run["results"][0]["locations"] == []
    physical = run["results"][2]["locations"][0]["physicalLocation"]
    assert physical == {"artifactLocation": {"uri": "my%20train.py"}, "region": {"startLine": 3}}
    require_sarif(json.loads(sarif.render(diagnosis())))


def test_annotations_are_escaped():
    odd = replace(BIG, where="a,b:c")
    lines = github.render(diagnosis(odd, ARGUMENT, SMALL, facts={"target": target("train.py", 3)})).split(
        "\n"
    )
    assert lines[0].startswith("::error title=STK201 Shared memory is small::a,b:c: /dev/shm holds 64 MiB")
    assert "95%25%0Aand that" in lines[0]
    assert lines[1].startswith("::warning file=train.py,line=3,title=STK703 ")
    assert lines[2].startswith("::notice file=train.py,line=3,title=STK408 ")
    assert lines[3].startswith("::notice title=stoker doctor::train.py:train")
    assert len(lines) == 4
    assert github._property("a:b,c%\r\n") == "a%3Ab%2Cc%25%0A"  # a return would hide what stands before it


def test_markdown_means_itself():
    odd = replace(BIG, evidence="<b> *x* a|b `c` _d_ & e", where="self.`x`")
    text = markdown.render(diagnosis(odd, ARGUMENT))
    assert text.startswith(
        "**2 problems, the worst: Shared memory is small (STK201, high)** in train.py:train"
    )
    assert r"- Seen: \<b\> \*x\* a\|b \`c\` \_d\_ &amp; e" in text
    assert "- Where: `` self.`x` ``" in text
    assert "- Change: `pin_memory=True  →  pin_memory=False   in train.py:3`" in text
    assert "<summary>Skipped</summary>" in text


class _Tags(HTMLParser):
    """Whether every tag is closed, and none reaches outside."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        assert tag not in ("script", "link", "img", "style", "iframe", "q")
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_a_notebook_shows_it_whole_and_escaped():
    odd = replace(BIG, evidence="<script>alert(1)</script>", where="dataset['<q>']")
    found = diagnosis(odd, ARGUMENT, SMALL, interrupted=True)
    shown = found._repr_html_()
    tags = _Tags()
    tags.feed(shown)
    tags.close()
    assert tags.open == []
    assert "&lt;script&gt;" in shown
    assert "http" not in shown
    assert str(found) == screen.render(found)
    assert found._repr_markdown_() == markdown.render(found)


def test_what_an_error_says_does_not_steer_the_terminal():
    nasty = "no \x1b[31mpicture\x1b[0m\x1b]0;title\x07 \x1bc\x9b2J\x08\u202e here"
    file = io.StringIO()
    screen.show(diagnosis(replace(BIG, evidence=nasty, where=nasty)), file)
    assert "Seen    no picture 2J here" in file.getvalue()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", file.getvalue())


def test_clues_of_an_explanation_are_no_markdown():
    found = explain(
        "RuntimeError: DataLoader worker (pid 3) is killed by signal: <img src=x onerror=y> `a`. "
    )
    told = found._repr_markdown_()
    assert r"signal img src=x onerror=y\>" in told
    assert "`` RuntimeError: DataLoader worker" in told
    assert "<img" not in found._repr_html_()


def test_a_process_without_standard_output_is_told_nothing(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    screen.show(diagnosis(BIG))
