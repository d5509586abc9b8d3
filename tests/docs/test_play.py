"""What plays the pages notices what is wrong with them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.docs.blocks import Block
from tests.docs.guides.guide import Steps, raises
from tests.docs.play import advance, outcome, resolve, run


def block(source: str, line: int = 1) -> Block:
    return Block("page.md", line, "python", source, "")


def test_blocks_share_their_names() -> None:
    names: dict[str, Any] = {}
    run(block("a = 1"), names)
    run(block(">>> b = a + 1\n>>> print(b, 'and more')\n2 and ...\n"), names)
    assert names["b"] == 2


def test_a_doctest_that_prints_something_else_fails() -> None:
    with pytest.raises(AssertionError, match="Expected"):
        run(block(">>> 1 + 1\n3\n"), {})


def test_an_error_names_the_line_of_the_page() -> None:
    error = outcome(block("a = 1\nb = nobody", line=40), {})
    assert isinstance(error, NameError)
    assert error.__traceback__ is not None
    assert error.__traceback__.tb_next is not None
    last = error.__traceback__.tb_next.tb_next
    assert last is not None
    assert (last.tb_frame.f_code.co_filename.endswith("page.md"), last.tb_lineno) == (True, 41)


def test_what_is_not_run_has_names_that_exist() -> None:
    resolve(block("def f(x):\n    return x + y + len(z)\nimport z.a"), {"y": 1})
    with pytest.raises(AssertionError, match="'nobody'"):
        resolve(block("for a in nobody: print(a)"), {})
    with pytest.raises(SyntaxError):
        resolve(block("{'a': 1, ...}"), {})


def two_blocks() -> Steps:
    with raises(ValueError, "this"):
        yield
    yield


def test_a_guide_says_what_has_to_fail() -> None:
    steps = two_blocks()
    next(steps)
    advance(steps, ValueError("this and that"), last=False)
    advance(steps, None, last=True)


@pytest.mark.parametrize("error", [None, ValueError("that"), KeyError("this")])
def test_what_does_not_fail_as_it_should_fails(error: BaseException | None) -> None:
    steps = two_blocks()
    next(steps)
    with pytest.raises((AssertionError, KeyError)):
        advance(steps, error, last=False)


def test_a_guide_has_as_many_steps_as_the_page_has_blocks() -> None:
    steps = two_blocks()
    next(steps)
    with pytest.raises(AssertionError, match="its guide is not"):
        advance(steps, ValueError("this"), last=True)
    with pytest.raises(AssertionError, match="the page is not"):
        advance(steps, None, last=False)
