"""The answer is found by its name, and only the code that it depends on is run."""

import json
import sys

import jax
import pytest

from grader.answers import find
from grader.answers.find import NoAnswer
from grader.answers.running import Page
from grader.exercises import registry

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


def answer(path, exercise=None):
    """Run the statements of a file that its answer depends on, and return the answer."""
    found = find.read(path, exercise)
    with Page(found.module) as page:
        page.run(found.statements)
        return page.names[found.exercise]


def test_only_statements_that_the_answer_uses_are_run(tmp_path):
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


def test_a_call_that_changes_a_variable_of_the_answers_is_run(tmp_path):
    path = notebook(tmp_path, "names = ['a']", "names.append('b')", f"def {NAME}(): return names", "names.append('c')")
    assert answer(path)() == ["a", "b", "c"]


def test_calls_of_the_answer_and_its_functions_are_demonstrations(tmp_path):
    path = notebook(
        tmp_path,
        "import functools\nREG = {}",
        "def helper(): return REG",
        f"@functools.cache\ndef {NAME}(): return helper()",
        f"print({NAME}(), 1 / 0)",
        "print(helper(), 1 / 0)",
    )
    assert answer(path)() == {}


def test_a_rule_that_a_method_of_the_answer_decorates_is_run(tmp_path):
    path = notebook(
        tmp_path,
        "import jax",
        f"@jax.custom_jvp\ndef {NAME}(x): return x",
        f"@{NAME}.defjvp\ndef rule(primals, tangents): return primals[0], 7 * tangents[0]",
        f"print({NAME}(1 / 0))",
    )
    assert jax.grad(answer(path))(1.0) == 7


def test_the_last_definition_is_the_answer(tmp_path):
    path = notebook(tmp_path, STUB, f"def {NAME}(): return 1", f"def {NAME}(): return 2")
    assert answer(path)() == 2


def test_a_stub_does_not_hide_an_answer_above_it(tmp_path):
    assert answer(notebook(tmp_path, f"def {NAME}(): return 1", STUB))() == 1
    assert answer(notebook(tmp_path, f"{NAME} = lambda: 1", STUB, STUB))() == 1


def test_a_stub_alone_is_the_answer(tmp_path):
    with pytest.raises(NotImplementedError):
        answer(notebook(tmp_path, STUB))(1, 2, 3)


def test_an_answer_is_found_however_its_name_is_bound(tmp_path):
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


def test_functions_that_use_each_other_are_both_run(tmp_path):
    text = f"def even(n): return n == 0 or odd(n - 1)\ndef {NAME}(n): return even(n)\n"
    text += "def odd(n): return n > 0 and even(n - 1)"
    assert answer(script(tmp_path, text))(4)


def test_ipythons_own_lines_are_left_out(tmp_path):
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
def test_a_file_that_is_no_notebook_is_refused_in_a_sentence(tmp_path, text):
    with pytest.raises(NoAnswer, match=r"page\.ipynb is not a valid notebook"):
        find.read(script(tmp_path, text, "page.ipynb"))


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (
            [],
            "page.ipynb has no answer",
        ),
        (["x = 1"], "page.ipynb has no answer"),
        (
            ["def checkpoint_dots_policy(): pass"],
            "defines checkpoint_dots_policy, which is not an exercise; did you mean checkpoint_dot_policy?",
        ),
        ([f"def {NAME}(w1, w2:\n  pass"], "not valid Python (page.ipynb, code cell 1, line 1: "),
        (
            [f"def 1st(x): return x\ndef class(x): return x\ndef {NAME}(): 1st(2)"],
            "page.ipynb, code cell 1, line 1: invalid decimal",
        ),
        ([f"def {NAME}():\n    return (1\n\0"], "not valid Python (page.ipynb, code cell 1: the file contains a null"),
    ],
)
def test_the_message_about_a_file_without_an_answer_names_the_answer(tmp_path, cells, message):
    with pytest.raises(NoAnswer) as error:
        find.read(notebook(tmp_path, *cells))
    assert message in str(error.value)


def reason(path):
    with pytest.raises(NoAnswer) as error:
        find.read(path)
    return str(error.value)


def test_an_answer_in_a_markdown_cell_is_reported(tmp_path):
    path = notebook(tmp_path, "from jax.ad_checkpoint import checkpoint_name")
    page = json.loads(path.read_text())
    for kind in ("markdown", "raw"):
        page["cells"][1:] = [{"cell_type": kind, "source": [f"def {NAME}(w1, w2, x):\n", "    return x"]}]
        path.write_text(json.dumps(page))
        assert f"defines {NAME} is not a code cell" in reason(path)


def test_an_imported_name_is_no_misspelled_exercise(tmp_path):
    path = notebook(tmp_path, "from jax.ad_checkpoint import checkpoint_name")
    assert "checkpoint_name" not in reason(path)


@pytest.mark.parametrize("text", ["def helper(:\n    pass", "def chekpoint_dot_policy(w1:", "x = (1"])
def test_a_syntax_error_is_reported_with_its_line(tmp_path, text):
    said = reason(script(tmp_path, text))
    assert "not valid Python (answer.py:1: " in said and not any(name in said for name in registry.names())


def test_the_message_about_a_page_without_an_answer_names_its_exercise(tmp_path):
    assert f"a function named {NAME}" in reason(script(tmp_path, "x = 1", f"07_{NAME}.py"))
    assert not any(name in reason(script(tmp_path, "x = 1")) for name in registry.names())


@pytest.mark.parametrize(
    ("cells", "replaced"),
    [
        ([f"def {NAME}(): return 1", "x = 2", f"def {NAME}(): return 2"], ["page.ipynb, code cell 1, line 1"]),
        ([f"def {NAME}(): return 1", f"from math import sin as {NAME}"], ["page.ipynb, code cell 1, line 1"]),
        ([f"def {NAME}(): return 1", f"{NAME} = print({NAME}) or {NAME}"], []),
        ([STUB, f"def {NAME}(): return 1", STUB], []),
    ],
)
def test_definitions_that_another_replaces_are_known(tmp_path, cells, replaced):
    assert list(find.read(notebook(tmp_path, *cells)).replaced) == replaced


def test_a_helper_in_a_cell_with_a_syntax_error_is_reported_with_its_cell(tmp_path):
    path = notebook(tmp_path, "def helper(x):\n    return (x", f"def {NAME}():\n    return helper(1)")
    with pytest.raises(
        NameError, match=r"'helper' is not defined; .* \(page\.ipynb, code cell 1, line 2: '\(' was never"
    ):
        answer(path)()


def test_of_a_helper_that_is_mended_further_down_the_broken_cell_does_not_matter(tmp_path):
    path = notebook(tmp_path, "def helper(x):\n    return x", "def helper(x:", f"def {NAME}():\n    return helper(1)")
    assert answer(path)() == 1


def test_a_page_of_very_many_cells_is_refused_in_a_sentence(tmp_path):
    page = tmp_path / "page.ipynb"
    cells = [{"cell_type": "code", "source": "x = 1"}] * 5_001
    page.write_text(json.dumps({"cells": cells}))
    with pytest.raises(NoAnswer, match=r"page\.ipynb has 5,001 cells; .* at most 5,000"):
        find.read(page)


@pytest.mark.parametrize("line", ["x = x + 1", "x{next} = x{number}"])
def test_reading_a_long_page_takes_time_by_its_length(tmp_path, line):
    def steps(count):
        lines = (line.format(next=number + 1, number=number) for number in range(count))
        (page := tmp_path / "page.py").write_text(
            "\n".join(["x = x0 = 0", *lines, "def policy_from_rules(rules): return x"])
        )
        called = 0

        def count_call(*_):
            nonlocal called
            called += 1

        sys.setprofile(count_call)
        try:
            find.read(page)
        finally:
            sys.setprofile(None)
        return called

    assert steps(400) < 5 * steps(100)


def test_a_file_that_cannot_be_read_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(NoAnswer, match=r"File not found: .*nowhere\.py"):
        find.read(tmp_path / "nowhere.py")
    with pytest.raises(NoAnswer, match="is neither a notebook"):
        find.read(script(tmp_path, "", "answer.txt"))
    with pytest.raises(NoAnswer, match=r"^folder\.py cannot be read"):
        (tmp_path / "folder.py").mkdir()
        find.read(tmp_path / "folder.py")
    with pytest.raises(NoAnswer, match=r"^latin\.py is not UTF-8 text \(line 2\)\. Save it again as UTF-8\.$"):
        (tmp_path / "latin.py").write_bytes(b"# one\n# \xe9\xff")
        find.read(tmp_path / "latin.py")


# The code that a session ran


def text(*cells):
    return find.of_cells(["", *cells], NAME).text


def test_a_sessions_text_is_in_the_order_of_execution():
    found = text(
        "import math, numpy  # the usual\nimport no_such_module",
        "# twice as much\n# is enough\nk = 2  # exactly",
        f"def {NAME}(v):\n    return helper(v)  # first try",
        "def helper(v):\n    return v",
        f"{NAME}(3)\nprint(1 / 0)",
        "def helper(v):\n\n    # better\n    return math.floor(v) * k\n\nplot(helper)",
        "once = lambda f: f\ndef twice(n):\n    return once",
        f"@once\n@twice(1)\ndef {NAME}(v):\n    return helper(v)   # second",
        f"check({NAME})",
    )
    assert found == (
        "import math, numpy  # the usual\n\n"
        "# twice as much\n# is enough\nk = 2  # exactly\n\n"
        "def helper(v):\n\n    # better\n    return math.floor(v) * k\n\n"
        "once = lambda f: f\ndef twice(n):\n    return once\n\n"
        f"@once\n@twice(1)\ndef {NAME}(v):\n    return helper(v)   # second\n"
    )


def test_adjacent_lines_stay_adjacent():
    cell = f"import math\n\n\ndef helper(v):\n    return v\n\n\n# The answer.\ndef {NAME}(v):\n    return helper(v)"
    assert text(cell + "\n\n\nprint(1)") == cell.replace("import math\n\n\n", "") + "\n"
    assert text(cell.replace("return v", "return math.pi")) == cell.replace("return v", "return math.pi") + "\n"


@pytest.mark.parametrize(
    ("kept", "cells"),
    [
        # A later definition replaces an earlier one, except for values computed with the earlier one.
        ([1, 2], ["def h(): return 1", "def h(): return 2", f"def {NAME}(): return h()"]),
        ([0, 1, 2, 3], ["def h(): return 1", "k = h()", "def h(): return 2", f"def {NAME}(): return h(), k"]),
        ([0, 1, 3], ["def h(): return 1", "k = h()", "def h(): return 2", f"def {NAME}(): return k"]),
        ([0, 1, 2, 4], ["k = 1", "def h(): return k", "t = h()", "k = 2", f"def {NAME}(): return t"]),
        # A function looks up its globals when it is called.
        ([0, 2], [f"def {NAME}(): return h()", "def h(): return 1", "def h(): return 2"]),
        ([0, 1], ["k = 1", f"def {NAME}(n=k): return n", "k = 2"]),
        ([1, 2], ["k = 1", f"def {NAME}(n): return k", "k = 2"]),
        ([0, 1, 3], ["class A:\n    k = 1", "class B(A): pass", "A = 3", f"def {NAME}(): return B().k"]),
        # A cell that was run several times.
        ([0, 2, 3, 4], ["k = 3", f"{NAME} = 0", f"{NAME} = 1", *[f"{NAME} = wrap({NAME}, k)"] * 2]),
        ([3, 4, 5], ["x = 1", "x += 1", "x += 1", f"def {NAME}(): return x", "x = 7", "x += 2"]),
        ([2, 3, 4], ["x = [1]", "x.append(2)", "x = [3]", "for v in [4]: x.append(v)", f"def {NAME}(): return x"]),
        ([2, 3, 4], ["t = {}", "t['a'] = 1", "t = {}", "t['b'] = 1", f"def {NAME}(): return t"]),
        ([1, 2], ["k: int = 1", "k: int = 2", f"def {NAME}(): return k", "k: str"][:3]),
        ([0, 1, 2], ["k = 1", "if k: k = 2", f"def {NAME}(): return k"]),
        # Imports.
        ([0, 1, 2], ["import a.b", "import a.c", f"def {NAME}(): return a.b"]),
        ([1, 2], ["import a", "import b as a", f"def {NAME}(): return a"]),
        ([1, 2], ["from m import *", "def h(): return 1", f"def {NAME}(): return h()"]),
        ([0, 1, 2], ["def h(): return 1", "from m import *", f"def {NAME}(): return h()"]),
    ],
)
def test_definitions_that_others_have_replaced_are_left_out(kept, cells):
    assert text(*cells) == "\n\n".join(cells[index] for index in kept) + "\n"


def test_cells_that_are_not_python_are_left_out():
    found = text(
        "%matplotlib inline\nimport math",
        "get_ipython().run_line_magic('timeit', '1')",
        "def broken(",
        "return 3",
        "files = !ls",
        "\0",
        "'\ud800'",
        "(" * 5000,
        "%%bash\necho",
        "",
        "await something()",
        f"%%time\nk = 1; j = 2; print(j)\r\ndef {NAME}():\r\n    %timeit 3\r\n    return math.pi, k",
        f"{NAME}?",
    )
    magic = "get_ipython().run_line_magic('timeit', '3')"
    assert found == f"import math\n\nk = 1\n\ndef {NAME}():\n    {magic}\n    return math.pi, k\n"


def test_a_session_without_the_answer_has_no_text():
    assert text() == text("k = 1", "def other(): return k") == ""


def test_future_imports_come_first():
    found = text("k = 1", f"from __future__ import annotations\ndef {NAME}(v: Unknown = k): return v")
    assert found.startswith("from __future__ import annotations\n\nk = 1\n\n")
    compile(found, "text", "exec")


def test_a_statement_after_multibyte_characters_is_extracted_completely():
    assert text(f"é = 'ü'; w = 'ö'; {NAME} = é + w; print('ß')") == f"é = 'ü'; w = 'ö'; {NAME} = é + w\n"


def test_a_deep_expression_is_found_whole(tmp_path):
    answer_ = f"{NAME} = " + " + ".join(["1"] * 900)
    assert text(answer_) == answer_ + "\n"


@pytest.mark.parametrize("file", [script, notebook])
def test_a_suffix_in_capital_letters_is_a_suffix(tmp_path, file):
    name = "ANSWER.PY" if file is script else "PAGE.IPYNB"
    assert answer(file(tmp_path, f"def {NAME}(): return 3", name=name))() == 3


def test_the_text_of_a_file_is_an_answer(tmp_path):
    path = notebook(tmp_path, "import math, nothing_here", "k = 3", STUB, f"def {NAME}(): return math.floor(k + 0.5)")
    path.write_text(path.read_text().replace("import math, nothing_here", "import math\\nimport nothing_here"))
    found = find.read(path)
    assert found.text == f"import math\n\nk = 3\n\ndef {NAME}(): return math.floor(k + 0.5)\n"
    assert answer(script(tmp_path, found.text))() == 3
    assert not found.is_stub() and find.read(notebook(tmp_path, STUB)).is_stub()


def test_of_several_answers_in_a_file_one_must_be_named(tmp_path):
    path = script(tmp_path, f"def {NAME}(): return 1\ndef count_residuals(): return {NAME}() + 1")
    with pytest.raises(NoAnswer, match="each answer in its own file"):
        find.read(path)
    assert answer(path, "count_residuals")() == 2
    with pytest.raises(NoAnswer, match=r"answer\.py answers .*, not save_named"):
        find.read(path, "save_named")


def test_a_fingerprint_ignores_comments_formatting_and_order():
    same = ["import math\ndef f(x): return (x)", "def f(x):\n    # more\n    return x\n\n\nimport math"]
    assert len(set(map(find.fingerprint, same))) == 1
    assert len({find.fingerprint(t) for t in (same[0], "def f(x): return -x", "no Python", "nor this", "")}) == 5


def test_rules_of_a_decorated_function_belong_to_it(tmp_path):
    path = tmp_path / "rules.py"
    path.write_text(f"import jax\n\n@jax.custom_vjp\ndef f(x): ...\n\nf.defvjp(1, 2)\n\ndef {NAME}(x): return f(x)\n")
    assert "f.defvjp(1, 2)" in find.read(path, NAME).text
