"""Checks the summary on a run page: it is another process' word, and a page may be damaged. Pure."""

from __future__ import annotations

from typing import Any, cast

from stoker._record.run_page.summary import Summary
from stoker._record.typed_values import wrong
from stoker.errors import RecordError


def checked(found: Any) -> Summary:
    """The same value. Raises RecordError for what no loader writes. An entry that an older stoker did not write is None."""
    what = wrong(found, Summary)
    if what:
        raise RecordError(f"the run page's summary is damaged: {what}")
    return cast(Summary, found)
