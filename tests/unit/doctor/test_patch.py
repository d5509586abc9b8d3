"""Patches of source texts: what was asked for changes, and nothing else."""

from __future__ import annotations

import ast
import difflib
import inspect
import io
import tokenize

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import stoker
from stoker._record.finding import Edit
from stoker._tools.doctor.patches.patch import WantedEdit, kind_of, patched


def patch(text: str, *edits: Edit, line: int | None = None) -> str:
    """The patched text; every edit must have been made, and asking again changes nothing."""
    wanted = [WantedEdit(f"STK{number}", edit, line) for number, edit in enumerate(edits, 100)]
    found = patched(text, wanted)
    assert found.refused == ()
    again = patched(found.text, [WantedEdit(each.code, each.edit, None) for each in wanted])
    assert again.text == found.text
    assert again.made == ()
    return found.text


def refusal(text: str, *edits: Edit, line: int | None = None) -> str:
    """Why the last edit was refused."""
    found = patched(text, [WantedEdit("STK1", each, line) for each in edits])
    assert len(found.refused) == 1
    return found.refused[0].reason


def added(before: str, after: str) -> list[str]:
    """Lines that are new or gone, with their sign."""
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [each for each in lines if each[0] in "+-"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = DataLoader(ds)", "x = DataLoader(ds, pin_memory=False)"),
        ("x = DataLoader(ds, 4, )", "x = DataLoader(ds, 4, pin_memory=False, )"),
        ("x = DataLoader((ds))", "x = DataLoader((ds), pin_memory=False)"),
        ("x = DataLoader(ds, pin_memory=True)  # why", "x = DataLoader(ds, pin_memory=False)  # why"),
        ("x = DataLoader(ds, pin_memory=(a or b))", "x = DataLoader(ds, pin_memory=(False))"),
        (
            "x = DataLoader(ds, 4, True, None, None, 2, None, True)",
            "x = DataLoader(ds, 4, True, None, None, 2, None, False)",
        ),
        ("x = DataLoader(**more, pin_memory=True)", "x = DataLoader(**more, pin_memory=False)"),
        (
            'x = DataLoader(f("ä", "é)"), name="ü")',
            'x = DataLoader(f("ä", "é)"), name="ü", pin_memory=False)',
        ),
        (
            "x = DataLoader(\n    ds,\n    batch_size=4,  # four\n)",
            "x = DataLoader(\n    ds,\n    batch_size=4,  # four\n    pin_memory=False,\n)",
        ),
        (
            "x = DataLoader(\n    ds,\n    batch_size=4  # four\n)",
            "x = DataLoader(\n    ds,\n    batch_size=4,  # four\n    pin_memory=False\n)",
        ),
        (
            "x = DataLoader(ds,\n               batch_size=4)",
            "x = DataLoader(ds,\n               batch_size=4,\n               pin_memory=False)",
        ),
        (
            "x = DataLoader(\r\n    ds,\r\n)\r\ny = 1\r\n",
            "x = DataLoader(\r\n    ds,\r\n    pin_memory=False,\r\n)\r\ny = 1\r\n",
        ),
        ("x = DataLoader(\n    ds, 4\n)", "x = DataLoader(\n    ds, 4, pin_memory=False\n)"),
    ],
)
def test_an_argument_is_changed_or_added(text, expected):
    assert patch(text, Edit("pin_memory=False", "pin_memory=True")) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = DataLoader(ds, pin_memory=True)", "x = DataLoader(ds)"),
        ("x = DataLoader(ds, pin_memory=True, shuffle=a)", "x = DataLoader(ds, shuffle=a)"),
        ("x = DataLoader(ds, pin_memory=True,)", "x = DataLoader(ds, )"),
        ("x = DataLoader(pin_memory=True, dataset=ds)", "x = DataLoader(dataset=ds)"),
        ("x = DataLoader(\n    ds,  # a\n    pin_memory=True,  # b\n)", "x = DataLoader(\n    ds,  # a\n)"),
        ("x = DataLoader(ds)", "x = DataLoader(ds)"),
    ],
)
def test_an_argument_is_taken_out(text, expected):
    assert patch(text, Edit("", "pin_memory=True")) == expected


def test_two_arguments_of_one_edit_and_several_edits_of_one_call():
    text = "import torch\nx = DataLoader(\n    ds,\n)\n"
    edits = (
        Edit("num_workers=2, persistent_workers=True"),
        Edit("timeout=30"),
        Edit("stoker.share(ds)"),
        Edit("shuffle=True"),
    )
    after = patch(text, *edits, line=2)
    assert after == (
        "import stoker\nimport torch\nx = DataLoader(\n    stoker.share(ds),\n"
        "    num_workers=2,\n    persistent_workers=True,\n    timeout=30,\n    shuffle=True,\n)\n"
    )


def test_what_cannot_be_done_safely_is_refused_with_its_reason():
    edit = Edit("pin_memory=False")
    assert refusal("x = DataLoader(ds, **more)", edit) == "pin_memory may be in **more: change it there"
    assert refusal("x = DataLoader(*all)", edit) == "pin_memory may be in *all: change it there"
    assert refusal("x = f(ds)", edit) == "there is no call of a DataLoader in the file"
    assert refusal("x = DataLoader(a)\ny = DataLoader(b)", edit).startswith("there are 2 calls")
    assert refusal("x = DataLoader(a)\ny = 1", edit, line=2) == "there is no call of a DataLoader at line 2"
    assert refusal("x = DataLoader(a for a in b)", edit) == "the file would no longer be Python"
    assert refusal('x = f"{DataLoader(ds)}"', edit) == "its call stands in a string"
    assert "several" not in refusal("x = DataLoader(DataLoader(b))", edit)
    assert "not a change of the file" in refusal("x = DataLoader(a)", Edit("docker run --shm-size=8g"))
    with pytest.raises(SyntaxError):
        patched("def", [])


def test_of_two_that_contradict_each_other_the_first_wins():
    text = "x = DataLoader(ds, num_workers=2)"
    edits = [Edit("num_workers=0"), Edit("num_workers=8"), Edit("", "num_workers=2"), Edit("num_workers=0")]
    found = patched(text, [WantedEdit(f"STK{place}", each, 1) for place, each in enumerate(edits)])
    assert found.text == "x = DataLoader(ds, num_workers=0)"
    assert found.made == ("STK0",)
    assert [(each.code, each.reason) for each in found.refused] == [
        ("STK1", "another finding asks for num_workers=0"),
        ("STK2", "another finding asks for num_workers=0"),
    ]


def test_without_workers_goes_what_is_about_workers():
    text = "x = DataLoader(ds, num_workers=2, prefetch_factor=4, persistent_workers=True)"
    assert patch(text, Edit("num_workers=0")) == "x = DataLoader(ds, num_workers=0)"
    edits = [Edit("num_workers=0"), Edit("persistent_workers=True"), Edit("pin_memory=True")]
    found = patched(text, [WantedEdit("STK1", each, 1) for each in edits])
    assert found.text == "x = DataLoader(ds, num_workers=0, pin_memory=True)"
    assert [each.reason for each in found.refused] == ["another finding leaves out persistent_workers"]
    found = patched(text, [WantedEdit("STK1", each, 1) for each in edits[1::-1]])
    assert found.text == text
    assert found.refused[0].reason == "another finding asks for persistent_workers=True"
    starred = "x = DataLoader(ds, num_workers=2, **more)"
    assert refusal(starred, Edit("num_workers=0")) == "prefetch_factor may be in **more: change it there"


HEAD = '"""What it is."""\n\nfrom __future__ import annotations\n\nimport sys\n\nimport numpy as np\n'


def test_sharing_imports_stoker_where_imports_are():
    text = f"{HEAD}\nx = DataLoader(ds, 4)\n"
    after = patch(text, Edit("stoker.share(dataset)"))
    assert added(text, after) == [
        "+ import stoker",
        "- x = DataLoader(ds, 4)",
        "+ x = DataLoader(stoker.share(ds), 4)",
    ]
    ast.parse(after)
    bare = patch('"""Doc."""\nx = DataLoader(dataset=ds)\n', Edit("stoker.share(dataset)"))
    assert bare == '"""Doc."""\nimport stoker\n\nx = DataLoader(dataset=stoker.share(ds))\n'
    assert (
        patch("import stoker\nx = DataLoader(stoker.share(a))", Edit("stoker.share(a)")).count("share") == 1
    )


def test_thread_variables_come_before_the_first_import_that_may_read_them():
    edits = (
        Edit("OMP_NUM_THREADS=1", kind="environment"),
        Edit('os.environ.setdefault("MKL_NUM_THREADS", "1")'),
    )
    after = patch(f"{HEAD}\nx = 1\n", *edits)
    assert after.partition("import sys\n")[2] == (
        '\nimport os\n\nos.environ.setdefault("OMP_NUM_THREADS", "1")\n'
        'os.environ.setdefault("MKL_NUM_THREADS", "1")\n\nimport numpy as np\n\nx = 1\n'
    )
    after = patch("import os\nimport torch\n", edits[0])
    assert after == 'import os\n\nos.environ.setdefault("OMP_NUM_THREADS", "1")\n\nimport torch\n'
    assert patch('"""Doc."""\n', edits[0]).endswith('"OMP_NUM_THREADS", "1")\n\n')
    taken = 'import os\nos.environ["OMP_NUM_THREADS"] = "4"\nimport torch\n'
    assert refusal(taken, edits[0]) == "line 2 sets OMP_NUM_THREADS to something else"
    assert (
        refusal("import os; import torch\n", edits[0])
        == "its first import shares a line with another statement"
    )


def test_an_import_that_is_added_does_not_come_between():
    text = "import sys\n\nx = DataLoader(ds)\n"
    edits = (Edit("OMP_NUM_THREADS=1"), Edit("stoker.share(ds)"))
    assert patch(text, *edits).count("OMP_NUM_THREADS") == 1
    assert patch(text, *edits[::-1]).count("OMP_NUM_THREADS") == 1
    decorated = "import torch\n\n@given(DataLoader(ds))\ndef f(): pass\n"
    after = patch(decorated, Edit("cv2.setNumThreads(0)", kind="init"), line=3)
    assert "\n\n\n@given(DataLoader(ds, worker_init_fn=prepare_worker))\ndef f" in after


def test_statements_for_workers_become_one_function():
    text = f"{HEAD}\n\n# The loader.\n@cached\ndef make(ds):\n    return DataLoader(\n        ds,\n    )\n"
    edits = [
        Edit("np.random.seed(torch.initial_seed() % 2**32)", kind="init"),
        Edit("cv2.setNumThreads(0)", kind="init"),
    ]
    found = patched(text, [WantedEdit(f"STK{place}", each, 13) for place, each in enumerate(edits)])
    assert found.refused == ()
    assert found.made == ("STK0", "STK1")
    assert added(text, found.text) == [
        "+ def prepare_worker(worker_id):",
        "+     import cv2",
        "+     import numpy as np",
        "+     import torch",
        "+ ",
        "+     np.random.seed(torch.initial_seed() % 2**32)",
        "+     cv2.setNumThreads(0)",
        "+ ",
        "+ ",
        "+         worker_init_fn=prepare_worker,",
    ]
    assert "\n\n\n# The loader.\n@cached" in found.text
    again = patched(found.text, [WantedEdit("STK0", each) for each in edits])
    assert (again.text, again.made, again.refused) == (found.text, (), ())


def test_a_function_for_workers_that_is_there_is_not_replaced():
    edit = Edit("cv2.setNumThreads(0)", kind="init")
    text = "def own(i): pass\nx = DataLoader(ds, worker_init_fn=own)\n"
    assert refusal(text, edit) == "it has a worker_init_fn: put cv2.setNumThreads(0) into own"
    assert "mystery" in refusal("x = DataLoader(ds)", Edit("mystery.call()", kind="init"))
    clash = "def prepare_worker(): pass\nx = DataLoader(ds, worker_init_fn=None)\n"
    assert "worker_init_fn=prepare_worker_2" in patch(clash, edit)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from torch.utils.data import DataLoader\n{}", "from stoker import DataLoader\n{}"),
        (
            "from torch.utils.data import DataLoader, Dataset\n{}",
            "from stoker import DataLoader\nfrom torch.utils.data import Dataset\n{}",
        ),
        (
            "from torch.utils.data import (\n    Dataset,\n    DataLoader,\n)\n{}",
            "from stoker import DataLoader\nfrom torch.utils.data import (\n    Dataset,\n)\n{}",
        ),
        ("from stoker import DataLoader\n{}", "from stoker import DataLoader\n{}"),
    ],
)
def test_the_loader_is_imported_from_stoker(text, expected):
    call = "x = DataLoader(ds)\n"
    edit = Edit("from stoker import DataLoader", "from torch.utils.data import DataLoader")
    assert patch(text.format(call), edit) == expected.format(call)


def test_a_loader_called_by_its_full_name_or_another_name():
    edit = Edit("from stoker import DataLoader")
    after = patch("import torch\nx = torch.utils.data.DataLoader(ds)\n", edit)
    assert after == "import stoker\nimport torch\nx = stoker.DataLoader(ds)\n"
    after = patch("from torch.utils.data import DataLoader as DL\nx = DL(ds)\n", edit)
    assert after == "from stoker import DataLoader as DL\nx = DL(ds)\n"
    assert "not imported" in refusal("from mine import DataLoader\nx = DataLoader(ds)\n", edit)
    assert "not torch's" in refusal("x = mine.DataLoader(ds)\n", edit)


GUARD = Edit('if __name__ == "__main__":')


def test_a_guard_goes_around_what_uses_the_loader():
    text = 'import torch\n\nx = DataLoader(ds)\n\n# Train.\ntotal = 0\nfor b in x:\n    s = """a\nb"""\n\nprint(total)\n'
    after = patch(text, GUARD)
    assert after.startswith("import torch\n\nx = DataLoader(ds)\n\n# Train.\ntotal = 0\n")
    assert after.endswith(
        'if __name__ == "__main__":\n    for b in x:\n        s = """a\nb"""\n\n    print(total)\n'
    )
    assert patch(f"x = DataLoader(ds)\n\n{after[after.index('if __name') :]}", GUARD).count("__main__") == 1


def test_a_guard_that_would_take_something_from_workers_is_refused():
    later = "x = DataLoader(ds)\nfor b in x: pass\ndef late(): pass\n"
    assert refusal(later, GUARD).startswith("late is defined after it")
    used = "def f(): return scale\nx = DataLoader(ds)\nfor b in x: pass\nscale = 2\n"
    assert refusal(used, GUARD).startswith("scale would be missing in workers")
    assert patch("x = DataLoader(ds)\ny = sum(x)\n", GUARD, line=2).endswith('"__main__":\n    y = sum(x)\n')
    assert refusal("x = DataLoader(ds)\n", GUARD, line=7) == "there is no statement at line 7"
    imports = "x = DataLoader(ds)\nfor b in x: pass\nimport sys\n"
    assert refusal(imports, GUARD).startswith("imports come after it")
    inside = "def f():\n    x = DataLoader(ds)\n"
    assert refusal(inside, GUARD).startswith("the loader is made in a function")


def test_a_dataset_is_wrapped_in_a_cache_once():
    edit = Edit('dataset = stoker.cache(dataset, before="transform", budget="8GiB")')
    after = patch("import torch\nx = DataLoader(Images(a), 4)\n", edit, line=2)
    assert after == (
        'import stoker\nimport torch\nx = DataLoader(stoker.cache(Images(a), before="transform", budget="8GiB"), 4)\n'
    )
    assert patch(after, edit, line=3) == after
    assert refusal(after, Edit("stoker.share(dataset)")) == "its dataset is a cache: change what is inside"
    assert refusal("x = DataLoader(ds)\n", Edit("cache it", kind="cache")) == "'cache it' wraps no dataset"


def test_kinds_are_told_from_the_text():
    kinds = {
        "persistent_workers=True": "argument",
        "stoker.share(dataset)": "share",
        'dataset = stoker.cache(dataset, budget="8GiB")': "cache",
        "dataset.loader = stoker.cached(dataset.loader)": "shown",
        "from stoker import DataLoader": "import",
        "OMP_NUM_THREADS=1": "environment",
        "docker run --shm-size=8g": "shown",
        "self.file = None": "shown",
        "weights=3": "shown",
        "": "shown",
    }
    assert {text: kind_of(Edit(text)) for text in kinds} == kinds


ARGUMENTS = st.dictionaries(
    st.sampled_from(["batch_size", "shuffle", "num_workers", "pin_memory", "timeout", "name"]),
    st.sampled_from(
        ["4", "True", "f(1, 2)", "(3)", '"a, #b)"', "lambda rows: rows[0]", "{**a, 'ß': 1}", "x[1:2]"]
    ),
    max_size=5,
)
SEPARATORS = st.sampled_from([", ", ",", ",\n        ", ",  # why\n        ", " ,\n  "])


@st.composite
def sources(draw: st.DrawFn) -> str:
    arguments = ["dataset", *(f"{name}={value}" for name, value in draw(ARGUMENTS).items())]
    text = arguments[0]
    for each in arguments[1:]:
        text += draw(SEPARATORS) + each
    text += draw(st.sampled_from(["", ",", ",\n    ", "\n    ", "  # last\n    ", ",  # last\n"]))
    text = draw(st.sampled_from(["", "\n        ", "  # first\n        "])) + text
    head = draw(
        st.sampled_from(["", '"""Doc ü."""\n', "import os\n", "from __future__ import annotations\n"])
    )
    tail = draw(st.sampled_from(["", "\n", "\nfor batch in train:\n\tpass", "  # end\n\n\n\f\ny = 1\n"]))
    return f"{head}train = DataLoader({text}){tail}"


def comments(text: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [each.string for each in tokens if each.type == tokenize.COMMENT]


def common(one: str, other: str) -> tuple[int, int]:
    """How many characters at their beginnings and at their ends are the same."""

    def alike(left: str, right: str) -> int:
        pairs = enumerate(zip(left, right, strict=False))
        return next((place for place, pair in pairs if pair[0] != pair[1]), min(len(left), len(right)))

    left = alike(one, other)
    return left, alike(one[left:][::-1], other[left:][::-1])


def follows(part: str, whole: str) -> bool:
    """Whether all characters of one are in the other, in their order."""
    letters = iter(whole)
    return all(each in letters for each in part)


@settings(max_examples=80, deadline=None)
@given(
    sources(),
    st.sampled_from(["pin_memory", "num_workers", "persistent_workers"]),
    st.sampled_from(["7", "g(True)"]),
)
def test_any_call_differs_in_the_argument_alone(text, name, value):
    found = patched(text, [WantedEdit("STK1", Edit(f"{name}={value}"))])
    assert found.refused == ()
    before, after = ast.parse(text), ast.parse(found.text)
    called = next(each for each in ast.walk(after) if isinstance(each, ast.Call) and each.keywords)
    values = {each.arg: ast.unparse(each.value) for each in called.keywords}
    assert values.pop(name) == value
    for tree in (before, after):
        for call in (each for each in ast.walk(tree) if isinstance(each, ast.Call)):
            call.keywords = [each for each in call.keywords if each.arg != name]
    assert ast.dump(before) == ast.dump(after)
    assert comments(found.text) == comments(text)
    # Byte for byte: what was there is there in its order, but for the old value where there was one.
    left, right = common(text, found.text)
    kept = text if f"{name}=" not in text else text[:left] + text[len(text) - right :]
    assert follows(kept, found.text)
    assert len(found.text) - len(text) <= len(f"{name}={value}") + 10
    assert patched(found.text, [WantedEdit("STK1", Edit(f"{name}={value}"))]).text == found.text
    gone = patched(found.text, [WantedEdit("STK1", Edit("", f"{name}={value}"))])
    if not gone.refused:
        rest = ast.parse(gone.text)
        assert ast.dump(rest) == ast.dump(before)


@settings(max_examples=30, deadline=None)
@given(sources())
def test_all_kinds_together_leave_python_that_is_not_changed_again(text):
    edits = [
        Edit("stoker.share(dataset)"),
        Edit("OMP_NUM_THREADS=1"),
        Edit("cv2.setNumThreads(0)", kind="init"),
        Edit("import threadpoolctl\nthreadpoolctl.threadpool_limits(1)", kind="init"),
        Edit("timeout=30"),
        GUARD,
    ]
    wanted = [WantedEdit(f"STK{place}", each) for place, each in enumerate(edits)]
    found = patched(text, wanted)
    assert found.refused == ()
    assert "stoker.share(dataset)" in found.text
    assert "def prepare_worker(worker_id):" in found.text
    assert patched(found.text, wanted).text == found.text


def test_a_name_given_in_an_argument_is_not_lost():
    text = "if (loader := DataLoader(ds, num_workers=(n := 2))): print(n)\n"
    assert refusal(text, Edit("num_workers=0")) == "num_workers is given by (n := 2): change it there"
    assert refusal(text, Edit("", "num_workers=2", kind="argument")).startswith("num_workers is given by")
    assert "num_workers=(n := 2), pin_memory=True" in patch(text, Edit("pin_memory=True"))


def test_a_class_with_arguments_of_its_own_is_not_given_others():
    text = "class FileLoader(DataLoader):\n    def __init__(self, path, n):\n        self.n = n\n\n\nloader = FileLoader('p', 2)\n"
    assert (
        refusal(text, Edit("num_workers=0"), line=6)
        == "FileLoader has arguments of its own: change its class"
    )
    plain = text.replace("__init__", "other")
    assert "FileLoader('p', 2, num_workers=0)" in patch(plain, Edit("num_workers=0"), line=6)


def test_every_argument_but_the_dataset_is_one_that_a_patch_may_write():
    for kind in (torch.utils.data.DataLoader, stoker.DataLoader):
        for name in inspect.signature(kind).parameters:
            assert kind_of(Edit(f"{name}=1")) == ("shown" if name == "dataset" else "argument")


def test_a_variable_is_changed_where_it_is_set_or_left_to_the_user():
    wanted = [WantedEdit("tune", Edit("num_workers=4"))]
    once = "workers = 0\nloader = DataLoader(ds, num_workers=workers)\n"
    assert patched(once, wanted).text == "workers = 4\nloader = DataLoader(ds, num_workers=workers)\n"
    for text in (
        "loader = DataLoader(ds, num_workers=args.workers)\n",
        "def make(workers):\n    return DataLoader(ds, num_workers=workers)\n",
        "workers = 0\nloader = DataLoader(ds, num_workers=workers)\nprint(workers)\n",
    ):
        found = patched(text, wanted)
        assert found.text == text
        assert "change it there" in found.refused[0].reason
