"""What ``stoker advise`` ranks, reaches and prints; the runs themselves are in tests/e2e/test_advise.py."""

from __future__ import annotations

from stoker._record.finding import Edit, Finding, Gain
from stoker._tools.advise.ranking import MOST_EDITS, ranked
from stoker._tools.advise.reachable import reachable
from stoker._tools.doctor.diagnosis import Diagnosis
from stoker._tools.report.verdict.verdict import judge
from tests.unit.records import loader, run

IO = {("fetch", 0, "io"): 0.9, ("start", -1, "start_up"): 0.1}


def _diagnosis(*findings: Finding) -> Diagnosis:
    return Diagnosis(subject="train.py:make", findings=findings, passed=(), skipped=(), facts={})


def _finding(code: str, severity: str, after: str, share: float | None = None) -> Finding:
    gain = None if share is None else Gain(share, "measured")
    return Finding(code, severity, "seen", "do it", Edit(after, None, "train.py:31"), gain)


def test_what_breaks_the_run_comes_first_then_gains_then_the_unknown():
    found = ranked(
        judge(run(loader(IO))),
        [
            _diagnosis(
                _finding("STK1", "moderate", "pin_memory=False"),
                _finding("STK2", "high", "timeout=60"),
                _finding("STK3", "moderate", "drop_last=True", 0.9),
                _finding("STK4", "low", "in_order=False", 0.9),
            )
        ],
    )
    assert [each.code for each in found][:3] == ["STK2", "STK3", "more-workers"]
    assert "STK4" not in [each.code for each in found]
    assert len(found) <= MOST_EDITS


def test_two_edits_of_one_argument_are_one():
    rival = _diagnosis(_finding("STK9", "moderate", "num_workers=1", 0.01))
    found = ranked(judge(run(loader(IO))), [rival])
    assert [each.edit.after for each in found if each.edit.after.startswith("num_workers")] == [
        "num_workers=5"
    ]


def test_five_at_most():
    many = _diagnosis(*(_finding(f"STK{place}", "high", f"a{place}=1") for place in range(9)))
    assert len(ranked(judge(run(loader(IO))), [many])) == MOST_EDITS


def test_loaders_that_can_be_had_without_a_training():
    guarded = "if __name__ == '__main__':\n    for batch in loader:\n        pass\n"
    assert reachable(f"loader = DataLoader(data)\n{guarded}") == ["loader"]
    assert reachable(f"def make(n=1):\n    return DataLoader(data)\n{guarded}") == ["make"]
    assert reachable(f"def make(n):\n    return DataLoader(data)\n{guarded}") == []
    assert reachable("loader = DataLoader(data)\nfor batch in loader:\n    pass\n") == []
    assert reachable("loader = DataLoader(data)\ndef main():\n    pass\nmain()\n") == []
