"""Judges a run record: where the waiting went and what to change."""

from stoker._tools.report.verdict.verdict import Verdict, judge

__all__ = ["Verdict", "judge"]
