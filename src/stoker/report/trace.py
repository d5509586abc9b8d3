"""Turns a run record into a trace for Perfetto, alone or beside a torch.profiler trace."""

from stoker._tools.report.trace.trace import build, merge, write

__all__ = ["build", "merge", "write"]
