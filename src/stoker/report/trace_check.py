"""Checks a trace's events against the rules that viewers rely on."""

from stoker._tools.report.trace.validation import violations

__all__ = ["violations"]
