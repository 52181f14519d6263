"""The answer is found by its name, and only what it builds on is run."""

import json

import pytest

from grader import submission
from grader.submission import SubmissionError

NAME = "checkpoint_dot_policy"
STUB = f'def {NAME}(w1, w2, x):\n    """Doc."""\n    raise NotImplementedError'


def notebook(folder, *cells, name="page.ipynb"):
    cells = [{"cell_type": "code", "source": cell.splitlines(True)} for cell in cells]
    path = folder / name
    path.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": "# Title"}, *cells], "nbformat": 4}))
    return path


def script(folder, text, name="answer.py"):
    path = folder / name
    path.write_text(text)
    return path


def answer(path):
    return submission.read(path).answer()


def test_a_script(tmp_path):
    assert answer(script(tmp_path, f"def {NAME}(): return 7"))() == 7


def test_only_what_the_answer_builds_on_is_run(tmp_path):
    path = notebook(
        tmp_path,
        "import math\nimport no_such_module\nfrom grader import check",
        "1 / 0  # a demonstration that fails",
        "scale = 2\nunused = 1 / 0",
        "def helper(v):\n    return math.floor(v) * scale * table['k']",
        "table = {}\ntable['k'] = 5\nprint(1 / 0)",
        f"check({NAME})",
        f"def {NAME}(v):\n    unused = 3\n    return helper(v)\ncheck({NAME})",
        "import matplotlib_is_not_here",
    )
    assert answer(path)(1.5) == 10


def test_a_variable_changed_by_a_method_call(tmp_path):
    path = notebook(tmp_path, "names = ['a']", "names.append('b')", f"def {NAME}(): return names", "names.append('c')")
    assert answer(path)() == ["a", "b", "c"]


def test_cells_in_any_order_and_copied(tmp_path):
    path = notebook(tmp_path, STUB, f"def {NAME}(): return 1", f"def {NAME}(): return 2")
    assert answer(path)() == 2


def test_a_stub_does_not_hide_an_answer_above_it(tmp_path):
    assert answer(notebook(tmp_path, f"def {NAME}(): return 1", STUB))() == 1
    assert answer(notebook(tmp_path, f"{NAME} = lambda: 1", STUB, STUB))() == 1


def test_a_stub_alone_is_the_answer(tmp_path):
    with pytest.raises(NotImplementedError):
        answer(notebook(tmp_path, STUB))(1, 2, 3)


def test_assigned_and_decorated_later(tmp_path):
    path = notebook(tmp_path, "import functools", f"def {NAME}(): return 1", f"{NAME} = functools.partial({NAME})")
    assert answer(path).func() == 1
    assert answer(script(tmp_path, f"from functools import partial\n{NAME} = partial(int, '7')"))() == 7
    assert answer(script(tmp_path, f"class A:\n    b = 3\n{NAME}, c = (lambda: A.b), 1 "))() == 3
    assert answer(script(tmp_path, f"from math import *\ndef {NAME}(): return floor(2.5)"))() == 2
    assert (
        answer(
            script(
                tmp_path, f"try:\n    import nothing_here as n\nexcept ImportError:\n    n = 4\ndef {NAME}(): return n"
            )
        )()
        == 4
    )


def test_functions_that_use_each_other(tmp_path):
    text = f"def even(n): return n == 0 or odd(n - 1)\ndef {NAME}(n): return even(n)\n"
    text += "def odd(n): return n > 0 and even(n - 1)"
    assert answer(script(tmp_path, text))(4)


def test_magics_are_left_out(tmp_path):
    path = notebook(
        tmp_path,
        "%matplotlib inline\n!ls\nk = 6",
        f"%%time\ndef {NAME}():\n    %timeit 3\n    return k % 4 + int('%d' % 3)\n{NAME}?",
        "%%bash\nrm -rf /",
        "text = '''\n%not a magic\n'''",
    )
    assert answer(path)() == 5


def test_a_script_s_main_is_not_run(tmp_path):
    text = f"def {NAME}(): return 1\nif __name__ == '__main__':\n    {NAME} = 1 / 0"
    assert answer(script(tmp_path, text))() == 1


@pytest.mark.parametrize(
    "text", ["not json", "[]", "{}", '{"cells": [3]}', '{"cells": [{"cell_type": "code"}]}', "[" * 100_000]
)
def test_no_notebook(tmp_path, text):
    with pytest.raises(SubmissionError, match=r"page\.ipynb is not a notebook that can be read: open it in JupyterLab"):
        submission.read(script(tmp_path, text, "page.ipynb"))


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (
            [],
            "page.ipynb has no answer: it needs a function named ",
        ),
        (["x = 1"], "page.ipynb has no answer"),
        (
            ["def checkpoint_dots_policy(): pass"],
            "defines checkpoint_dots_policy, which is not an exercise; did you mean checkpoint_dot_policy?",
        ),
        ([f"def {NAME}(w1, w2:\n  pass"], "The answer is not valid Python: page.ipynb cell 1:1: "),
    ],
)
def test_no_answer(tmp_path, cells, message):
    with pytest.raises(SubmissionError) as error:
        submission.read(notebook(tmp_path, *cells))
    assert message in str(error.value)


def test_no_file(tmp_path):
    with pytest.raises(SubmissionError, match=r"There is no file .*nowhere\.py: check its name"):
        submission.read(tmp_path / "nowhere.py")
    with pytest.raises(SubmissionError, match="is neither a notebook"):
        submission.read(script(tmp_path, "", "answer.txt"))
    with pytest.raises(SubmissionError, match="cannot be read"):
        (tmp_path / "folder.py").mkdir()
        submission.read(tmp_path / "folder.py")
    with pytest.raises(SubmissionError, match="as UTF-8"):
        (tmp_path / "latin.py").write_bytes(b"# \xe9\xff")
        submission.read(tmp_path / "latin.py")
