"""Explanations of bad input: long logs, junk, secrets; and how they look on a narrow screen and as JSON."""

from __future__ import annotations

import io
import json
import random
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import stoker
from stoker._host.secrets import HIDDEN, masked, masked_words
from stoker._record.finding import Edit, Finding
from stoker._tools.doctor.catalogue import catalogue
from stoker._tools.doctor.diagnosis import Diagnosis
from stoker._tools.doctor.explain import explain_log
from stoker._tools.doctor.facts.host import machine
from stoker._tools.doctor.forms import data
from stoker._tools.doctor.forms.explanation import listed, page, plain
from stoker._tools.doctor.reading import logs
from stoker._tools.render.code_lines import fitted
from stoker._tools.render.json_form import finding_form
from stoker._tools.report.verdict import screen
from stoker._tools.report.verdict.codes import VerdictFinding
from stoker._tools.report.verdict.verdict import judge
from stoker.cli.main import main
from tests.unit.doctor.test_explain_corpus import KNOWN
from tests.unit.records import loader, run

_parser: Any = import_module("re._parser")

SCHEMA = Path(__file__).parents[3] / "docs" / "findings.schema.json"
KILLED = "RuntimeError: DataLoader worker (pid 31) is killed by signal: Killed."


@pytest.fixture(autouse=True)
def no_machine(monkeypatch):
    monkeypatch.setattr(machine, "gather", machine.MachineFacts)


SECRETS = {
    "WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567": "0123456789abcdef",
    "paste an API key from your profile: fedcba9876543210fedcba9876543210fedcba98": "fedcba98765432",
    "huggingface token hf_AbCdEfGhIjKlMnOpQrStUvWx": "AbCdEfGh",
    "Authorization: Bearer abcdefgh12345678": "abcdefgh12345678",
    "https://li:hunter2@example.org/data.tar": "hunter2",
    "https://b.s3.amazonaws.com/a?X-Amz-Credential=AKIA1234&X-Amz-Signature=00ff00ff": "00ff00ff",
    "{'password': 'correct-horse'}": "correct-horse",
    "AKIAABCDEFGHIJKLMNOP": "AKIAABCD",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefgh": "eyJhbGciOiJIUzI1NiJ9.eyJz",
}


def test_a_command_line_is_kept_without_its_secrets():
    words = [
        "python",
        "train.py",
        "--hf-token",
        "abcdef123456",
        "--api_key=s3cr3tkey",
        "--max-tokens",
        "512",
        "--token",
    ]
    words += ["--lr", "0.1", "--tokenizer", "gpt2", "https://me:hunter2@example.org/data"]
    assert masked_words(words) == [
        *(
            "python",
            "train.py",
            "--hf-token",
            HIDDEN,
            f"--api_key={HIDDEN}",
            "--max-tokens",
            "512",
            "--token",
        ),
        *("--lr", "0.1", "--tokenizer", "gpt2", f"https://me:{HIDDEN}@example.org/data"),
    ]


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_never_written(text, tmp_path):
    """Not in the evidence, not in the clues, in no form."""
    secret = SECRETS[text]
    assert secret not in masked(text)
    assert HIDDEN in masked(text)
    for log in (
        f"FileNotFoundError: [Errno 2] No such file or directory: '{text}' {KILLED}\n",
        f'  File "/data/{text}/train.py", line 3, in <module>\n{KILLED} {text}\n',
        f"OSError: no idea {text}\n",
    ):
        found = stoker.explain(log)
        for form in (
            str(found),
            json.dumps(found.as_dict()),
            found._repr_markdown_(),
            found._repr_html_(),
            repr(found),
        ):
            assert secret not in form
        path = tmp_path / "log"
        path.write_text(log)
        for arguments in (["explain", str(path)], ["explain", "--json", str(path)]):
            assert secret not in CliRunner().invoke(main, arguments).output


@pytest.mark.parametrize(
    "text",
    [
        KILLED,
        "unable to open shared memory object </torch_5962_408180057> in read-write mode",
        '  File "/home/li/tokenizer/token_data.py", line 3, in get_token',
        "RuntimeError: stack expects each tensor to be equal size, but got [3, 4] at entry 0",
        "huggingface/tokenizers: The current process just got forked",
    ],
)
def test_what_is_no_secret_is_shown(text):
    assert masked(text) == text


class Lines(io.RawIOBase):
    """A file of 100 MB that lies in no memory: the same piece again and again, with one line in the middle."""

    def __init__(self, piece: bytes, total: int, middle: bytes) -> None:
        self._piece, self._left, self._half, self._middle = piece, total, total // 2, middle

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        if self._middle and self._left <= self._half:
            piece, self._middle = self._middle, b""
        else:
            piece = self._piece[: min(len(self._piece), self._left)]
            self._left -= len(piece)
        buffer[: len(piece)] = piece
        return len(piece)


def _begins_without_a_bound(parsed) -> bool:
    """Whether a pattern can begin with a run of any length, at every place: it then looks at a long word once for each letter."""
    for kind, told in parsed:
        if kind in (_parser.MAX_REPEAT, _parser.MIN_REPEAT):
            least, most, inner = told
            if most == _parser.MAXREPEAT or _begins_without_a_bound(inner):
                return True
            if least == 0:
                continue
        if kind is _parser.SUBPATTERN:
            return _begins_without_a_bound(told[-1])
        if kind is _parser.BRANCH:
            return any(map(_begins_without_a_bound, told[1]))
        return False  # a letter, a class, an anchor
    return False


def test_no_mark_begins_with_a_run_of_any_length():
    """Of one word of 65,000 letters, such a mark took minutes: the fuzzer found it."""
    assert _begins_without_a_bound(_parser.parse(r"\w+(?: \w+)? in"))
    assert not _begins_without_a_bound(_parser.parse(r"\b\w+ in"))
    patterns = [(check.code, mark.pattern) for check in catalogue() for mark in check.marks]
    assert [each for each in patterns if _begins_without_a_bound(_parser.parse(each[1]))] == []
    log = logs.of_file(io.BytesIO(b"Traceback (most recent call last):\n  " + b"a" * 65_536))
    assert explain_log(log).code is None


@pytest.mark.parametrize(
    "piece",
    [
        b"2026-01-01 10:00:00 INFO step 31 loss 0.31\n" * 100,
        random.Random(1).randbytes(8192),
        b"x" * 8192,
        b"WARNING worker 3: Error, once more\n" * 100,
    ],
    ids=["chatter", "junk", "one line without an end", "trouble in every line"],
)
def test_a_log_of_100_megabytes(piece):
    """It is read once, little of it is kept, and the failure in its middle is found."""
    file = io.BufferedReader(Lines(piece, 100_000_000, b"\n" + KILLED.encode() + b"\n"))
    log = logs.of_file(file)
    assert len(log.text) < 1_000_000
    assert explain_log(log).code == "STK603"


def test_binary_junk_is_unknown():
    for seed in range(20):
        junk = random.Random(seed).randbytes(20_000)
        assert explain_log(logs.of_file(io.BytesIO(junk))).code is None


class TestNarrow:
    """At 60 columns nothing is cut off by the terminal, but what has no place to break."""

    def test_pages(self):
        for check in catalogue():
            for line in page(check, 60).splitlines():
                assert len(line) <= 60 or " " not in line.strip(), (check.code, line)

    def test_explanations(self):
        for each in KNOWN:
            for line in plain(stoker.explain(str(each.values[1])), 60).splitlines():
                assert len(line) <= 60 or len(max(line.split(), key=len)) > 40, (each.id, line)

    def test_the_list(self):
        rows = [(check.code, check.name, check.title) for check in catalogue()]
        for width in (60, 80, 100):
            assert all(len(line) <= width for line in listed(rows, width))
        assert len(listed(rows, 200)) == len(rows)

    def test_code_stays_code(self):
        line = "loader = DataLoader(dataset, num_workers=4, persistent_workers=True)    # starts them once, not in every epoch"
        found = fitted(line, 50)
        assert found[0].startswith("# starts them once")
        joined = "\n".join(found)
        compile(joined, "page", "exec")
        assert all(len(each) <= 50 for each in found)
        assert fitted("docker run --ipc=host --shm-size=8g image python train.py", 40, "sh")[0].endswith(
            " \\"
        )
        assert fitted("x = 1", 50) == ["x = 1"]
        assert fitted("a" * 80, 50) == ["a" * 80]

    def test_code_of_every_page_still_compiles(self):
        for check in catalogue():
            for name in ("Example", "Fix"):
                for block in check.sections[name].split("```python\n")[1:]:
                    code = block.partition("\n```")[0]
                    try:
                        compile(code, check.code, "exec")
                    except SyntaxError:
                        continue  # a piece of a class: it does not compile on a wide screen either
                    lines = [each for line in code.splitlines() for each in fitted(line, 54)]
                    compile("\n".join(lines), check.code, "exec")


class TestJson:
    """One schema for all documents that hold findings."""

    def check(self, document):
        jsonschema = pytest.importorskip("jsonschema")
        jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(
            json.loads(json.dumps(document, default=repr))
        )

    def test_explanations(self):
        for each in KNOWN[::10]:
            found = stoker.explain(str(each.values[1])).as_dict()
            assert (found["format"], found["version"], found["findings"][0]["code"]) == (
                "stoker-explanation",
                1,
                each.values[0],
            )
            self.check(found)
        unknown = stoker.explain("nothing").as_dict()
        assert unknown["findings"] == []
        self.check(unknown)

    def test_a_diagnosis(self):
        finding = Finding(
            "STK201",
            "high",
            "seen",
            "do",
            Edit("a=1", None, "t.py:3", "argument"),
            where="x",
            numbers={"n": 1.5},
        )
        document = data.as_json(Diagnosis("t.py:loader", (finding,), (), ()))
        assert document["findings"]
        self.check(document)

    def test_a_verdicts_finding(self):
        finding = VerdictFinding("more-workers", "high", "seen", "do", None, None)
        assert json.loads(json.dumps(asdict(finding))) == finding_form(finding)
        verdict = screen.as_json(judge(run(loader({("fetch", 0, "io"): 2.0}))))
        assert verdict["loaders"][0]["findings"]
        self.check(verdict)
