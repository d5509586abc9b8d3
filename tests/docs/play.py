"""Runs the blocks of Python of one page, from top to bottom, as one program: ``python play.py PAGE``, from ``tests.warm``.

The folder it is started in is the page's own. It ends with 0 when all was as it should be, else with a traceback that names a line
of the page.
"""

from __future__ import annotations

import ast
import builtins
import doctest
import gc
import sys
import types
import warnings
from typing import Any

from tests.docs.blocks import ROOT, Block, blocks_of
from tests.docs.guides.guide import Steps, guides
from tests.docs.names import usual
from tests.docs.unreached import wrong
from tests.docs.unrun import PYTHON


def play(page: str, names: dict[str, Any]) -> None:
    """Run the page in these names."""
    guide = guides().get(page)
    steps = guide(names) if guide else None
    if steps is not None:
        next(steps)
    blocks = [each for each in blocks_of(page) if each.language in ("python", "setup")]
    left = sum(each.language == "python" for each in blocks)
    for block in blocks:
        if block.language == "setup":
            run(block, names)
            continue
        left -= 1
        if any(each[:2] == (page, block.first_line) for each in PYTHON):
            resolve(block, names)
            error = None
        else:
            error = outcome(block, names)
        if steps is not None:
            advance(steps, error, last=not left)
        elif error is not None:
            raise error
    gc.disable()  # what a page left behind is collected as it is without this look at it
    found = wrong((each for each in blocks if each.language == "python"), names)
    assert not found, "\n".join(found)


def outcome(block: Block, names: dict[str, Any]) -> BaseException | None:
    """Run it; what it raised."""
    try:
        run(block, names)
    except BaseException as error:
        return error
    return None


def advance(steps: Steps, error: BaseException | None, *, last: bool) -> None:
    """Let the guide look at what the block did, and go on to the next one."""
    try:
        if error is not None:
            steps.throw(error)
        else:
            next(steps)
    except StopIteration:
        assert last, "the guide is over, and the page is not"
    else:
        assert not last, "the page is over, and its guide is not"


def run(block: Block, names: dict[str, Any]) -> None:
    """Run a block, or compare a doctest with what it prints."""
    if block.source.startswith(">>>"):
        test = doctest.DocTestParser().get_doctest(
            block.source, names, block.page, block.page, block.line - 1
        )
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        said: list[str] = []
        runner.run(test, out=said.append, clear_globs=False)
        assert not runner.failures, "".join(said)
        names.update(test.globs)
        return
    exec(compiled(block), names)


def compiled(block: Block) -> types.CodeType:
    """With the page's lines, so that a traceback shows them."""
    return compile("\n" * (block.line - 1) + block.source, str(ROOT / block.page), "exec")


def resolve(block: Block, names: dict[str, Any]) -> None:
    """A block that is not run is compiled, and no name in it may come from nowhere."""
    compiled(block)
    tree = list(ast.walk(ast.parse(block.source)))
    made = {each.id for each in tree if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}
    made |= {each.arg for each in tree if isinstance(each, ast.arg)}
    made |= {each.name for each in tree if isinstance(each, ast.FunctionDef | ast.ClassDef)}
    made |= {(each.asname or each.name).split(".")[0] for each in tree if isinstance(each, ast.alias)}
    used = {each.id for each in tree if isinstance(each, ast.Name)}
    unknown = used - made - names.keys() - set(dir(builtins))
    assert not unknown, f"{block.place}: {sorted(unknown)} come from nowhere"


def main(page: str) -> None:
    """The page is ``__main__``: what it defines is found there, as what a script defines is."""
    warnings.simplefilter("error")
    warnings.simplefilter(
        "ignore", ResourceWarning
    )  # examples leave files to the garbage collector, as scripts do
    warnings.filterwarnings("ignore", "This DataLoader will create")
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    vars(module).update(usual(page))
    play(page, vars(module))


if __name__ == "__main__":
    main(sys.argv[1])
