"""Whose failure an exception is that an instrument caught."""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np

import stoker
from stoker._record.instruments import is_ours


def caught_in_ours(call: Any) -> bool:
    """What ``is_ours`` says, in a file of the package, of what ``call`` raises there."""
    source = (
        "def go():\n    try:\n        call()\n    except Exception as error:\n        return is_ours(error)\n"
    )
    names: dict[str, Any] = {"call": call, "is_ours": is_ours}
    exec(compile(source, os.path.join(os.path.dirname(stoker.__file__), "made_up.py"), "exec"), names)
    answer: bool = names["go"]()
    return answer


def test_what_c_code_and_the_standard_library_raise_for_us_is_ours() -> None:
    assert caught_in_ours({}.__getitem__)
    assert caught_in_ours(os.makedirs)
    assert caught_in_ours(functools.partial(np.partition, [1], 7))


def test_what_a_handler_of_the_script_raised_is_not() -> None:
    def handler() -> None:
        raise TimeoutError("time is up")

    assert not caught_in_ours(handler)
