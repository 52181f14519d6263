"""How cells and IPython's own syntax are run: an answer in a file behaves as it does in the notebook."""

import json

import pytest

from grader.answers import find, import_answers
from grader.verdicts.verdict import Verdict

NAME = "checkpoint_dot_policy"
ANSWER = f"def {NAME}(): return REG['k']"
INTO_REG = "REG = {}\ndef entry(f):\n    REG[f.__name__] = f()\n    return f"
K = "def k(): return 7"


def notebook(folder, *cells):
    path = folder / "page.ipynb"
    cells = [{"cell_type": "code", "source": cell} for cell in cells]
    path.write_text(json.dumps({"cells": cells, "nbformat": 4}))
    return path


def attempts_at(path):
    return import_answers.run_answer(find.read(path, NAME), path)


def call(tried):
    assert not isinstance(tried, Verdict), tried
    return tried.function()


# Each answer returns 7 if everything that it needs is found on the page.
READ = {
    "a registry that a decorator fills": [INTO_REG, f"@entry\n{K}", ANSWER],
    "one that a call fills": [INTO_REG, K, "entry(k)", ANSWER],
    "one that is filled below the answer": [INTO_REG, ANSWER, f"@entry\n{K}"],
    "one that is given": ["REG = {}\ndef add(to, f):\n    to['k'] = f()", K, "add(REG, k)", ANSWER],
    "one that a decorator is given": [
        "REG = {}\ndef into(to):\n    def entry(f):\n        to['k'] = f()\n    return entry",
        f"@into(REG)\n{K}",
        ANSWER,
    ],
    "one that a lambda fills": ["REG = {}\nentry = lambda f: REG.setdefault('k', f())", f"@entry\n{K}", ANSWER],
    "one with methods": [
        "class Registry(dict):\n    def add(self, f):\n        self['k'] = f()\nREG = Registry()",
        f"@REG.add\n{K}",
        ANSWER,
    ],
    "one that a comprehension fills": ["REG = {}", "[REG.update({n: 7}) for n in 'k']", ANSWER],
    "one that a loop fills": ["REG = {}", "for n in 'k':\n    REG[n] = 7", ANSWER],
    "one that subclasses fill": [
        "class Base:\n    REG = {}\n    def __init_subclass__(cls):\n        Base.REG['k'] = cls.k",
        "class Net(Base):\n    k = 7",
        ANSWER.replace("REG", "Base.REG"),
    ],
    "one that a metaclass fills": [
        "REG = {}\nclass Meta(type):\n    def __init__(cls, *_):\n        REG['k'] = cls.k",
        "class Net(metaclass=Meta):\n    k = 7",
        ANSWER,
    ],
    "setdefault": ["REG = {}", "_ = REG.setdefault('k', 7)", ANSWER],
    "|=": ["REG = {}", "REG |= dict(k=7)", ANSWER],
    "del": ["REG = {'k': 3, 'kk': 7}", "del REG['k']", ANSWER.replace("['k']", ".popitem()[1]")],
    "setattr of a class": ["class Config: k = 3", "setattr(Config, 'k', 7)", f"def {NAME}(): return Config.k"],
    "setattr of a function": [K, "setattr(k, 'k', 7)", f"def {NAME}(): return k.k"],
    "setattr of the page": ["import sys\nsetattr(sys.modules[__name__], 'k', 7)", f"def {NAME}(): return k"],
    "an attribute of __main__": ["import __main__\n__main__.k = 7", f"def {NAME}(): return k"],
    "an attribute of builtins": ["import builtins\nbuiltins.kk = 7", f"def {NAME}(): return kk"],
    "global": ["k = 3\ndef choose():\n    global k\n    k = 7", "choose()", f"def {NAME}(): return k"],
    "global, first": ["def choose():\n    global k\n    k = 7", "choose()", f"def {NAME}(): return k"],
    "register_pytree_node": [
        "import jax\nclass Box:\n    k = 7",
        "jax.tree_util.register_pytree_node(Box, lambda box: ((box.k,), None), lambda *_: Box())",
        f"def {NAME}(): return jax.tree.leaves(Box())[0]",
    ],
    "singledispatch": [
        "import functools\n@functools.singledispatch\ndef k(v): return 3",
        "@k.register\ndef _(v: int): return 7",
        f"def {NAME}(): return k(1)",
    ],
    "sys.modules": [
        "import sys, types\nsys.modules['made_here'] = types.SimpleNamespace(k=7)",
        "import made_here",
        f"def {NAME}(): return made_here.k",
    ],
    "exec": ["h = 7", "exec('def k():\\n    return h')", f"def {NAME}(): return k()"],
    "exec of the answer": ["k = 7", f"exec('def {NAME}(): return k')"],
    "globals()": ["globals()['k'] = 7", f"def {NAME}(): return k"],
    "globals(), computed": ["for n in 'k':\n    globals()[n] = 7", f"def {NAME}(): return k"],
    "globals().update": ["globals().update(k=7)", f"def {NAME}(): return k"],
    "globals(), read": ["k = 7", f"def {NAME}(): return globals()['k']"],
    "an entered context": [
        "import contextlib\nREG = {}\n@contextlib.contextmanager\ndef using(k):\n    REG['k'] = k\n    yield",
        "entered = using(7)\nentered.__enter__()",
        ANSWER,
    ],
    "a context variable": [
        "import contextvars\nK = contextvars.ContextVar('k')\ntoken = K.set(7)",
        f"def {NAME}(): return K.get()",
    ],
    "a notebook's main": ["if __name__ == '__main__':\n    k = 7", f"def {NAME}(): return k"],
    "a file that is run": ["%run helper.py", f"def {NAME}(): return from_helper"],
    # Calls that change what the answer uses, although they seem only to read it.
    "another name for the registry": ["REG = {}\nfilled = REG", "filled['k'] = 7", ANSWER],
    "a part of something": ["REG = {}", "for each in [REG]:\n    each['k'] = 7", ANSWER],
    "a mock": [
        "from unittest import mock\nclass Config: k = 3",
        "mock.patch.object(Config, 'k', 7).start()",
        f"def {NAME}(): return Config.k",
    ],
    "what is left of an iterator": ["REG = iter([3, 7])", "print(next(REG))", f"def {NAME}(): return next(REG)"],
    "a list that is given away": [
        "REG = [3]\nimport heapq, operator",
        "print(operator.setitem(REG, 0, 7))",
        f"def {NAME}(): return REG[0]",
    ],
    "a list in a list": [
        "REG = []\nall_of_them = [REG]",
        "all_of_them[0].append(7)",
        f"def {NAME}(): return REG[0]",
    ],
    "a list under another name": ["REG = []\nother = REG", "other += [7]", f"def {NAME}(): return REG[0]"],
    "what a function of the page is given": [
        "REG = {}\ndef fill(table): put(table)\ndef put(table): into = table; into['k'] = 7",
        "print(fill(REG))",
        ANSWER,
    ],
    "a registry that another decorator keeps": [
        "REG = {}\ndef into(to):\n    return lambda f: to.setdefault('k', f())\nentry = into(REG)",
        f"@entry\n{K}",
        ANSWER,
    ],
    "a method that was bound before": [
        "REG = {}\nlook = REG.get",
        "REG.update(k=7)",
        f"def {NAME}(): return look('k')",
    ],
    "globals() in a function": ["def choose():\n    globals()['k'] = 7", "choose()", f"def {NAME}(): return k"],
    "sys.path in a function": [
        "import sys, types\ndef put():\n    sys.modules['put_here'] = types.SimpleNamespace(k=7)",
        "put()",
        "import put_here",
        f"def {NAME}(): return put_here.k",
    ],
    "a method of the answer": [
        "class Late:\n    def becomes(self, f): self.f = f\n    def __call__(self): return self.f()",
        f"{NAME} = Late()",
        f"{NAME}.becomes(lambda: 7)",
    ],
    "a decorator that the answer calls, too": [
        INTO_REG,
        f"@entry\n{K}",
        f"def {NAME}():\n    entry(dict)\n    return REG['k']",
    ],
    # IPython's own syntax.
    "a command's output": [f"n = !nproc\nk = 6 + int(n[0])\ndef {NAME}(): return k"],
    "a magic's value": [f"t = %timeit -o 3\nk = 6 + int(t.best)\ndef {NAME}(): return k"],
    "magics in blocks": [f"for _ in ():\n    %precision 3\ndef {NAME}():\n    !false\n    return 7"],
    "a function of a magic": [f"def look():\n    %timeit 3\ndef {NAME}():\n    look()\n    return 7"],
    "cell magics": [f"%%capture out\n%%time\nn = !nproc\ndef {NAME}(): return 7"],
    "help": [f"?print\ndef {NAME}(): return 7\nlen?\nlen??"],
    "a command over lines": [f"!echo a \\\n   b\ndef {NAME}(): return 7"],
    "%time": [f"%time k = 7\ndef {NAME}(): return k"],
    "%time of the answer": [f"%time {NAME} = lambda: 7"],
    "%env": [f"%env A_K=7\nimport os\ndef {NAME}(): return int(os.environ['A_K'])"],
    "display, In": [f"def {NAME}():\n    display(In)\n    return 7"],
    "get_ipython": [
        f"from IPython import get_ipython\nshell = get_ipython()\ndef {NAME}():\n    shell.ex(1)\n    return 7"
    ],
    "prompts": [f">>> def {NAME}():\n...     return 7"],
    "an indented cell": [f"    k = 7\n    def {NAME}(): return k"],
    "await": [
        "import asyncio\nasync def later():\n    await asyncio.sleep(0)\n    return 7",
        f"k = await later()\ndef {NAME}(): return k",
    ],
    "async for": [f"async def each():\n    yield 7\nasync for k in each(): pass\ndef {NAME}(): return k"],
    "a pattern of a tuple": ["match (1, 7):\n    case (first, k): pass", f"def {NAME}(): return k"],
    "a pattern of a list": ["match [1, 7]:\n    case [first, *k]: pass", f"def {NAME}(): return k[0]"],
    "a pattern of a dict": [
        "match {'a': 1, 'k': 7}:\n    case {'a': _, **rest}: pass",
        f"def {NAME}(): return rest['k']",
    ],
    "a future import": ["from __future__ import annotations\nk = 7", f"def {NAME}() -> NoSuchName: return k"],
    # Ways to define an answer's name.
    "an if": [f"if REG := [7]:\n    def {NAME}(): return REG[0]\nelse:\n    def {NAME}(): return 3"],
    "a bound method": [f"class Net:\n    def run(self): return 7\n{NAME} = Net().run"],
    "an object": [f"class Net:\n    def __call__(self): return 7\n{NAME} = Net()"],
    "another name": [f"{K}\n{NAME} = k"],
}


@pytest.mark.parametrize("name", READ)
def test_the_definitions_that_an_answer_uses_are_found_on_the_page(tmp_path, name):
    (tmp_path / "helper.py").write_text("from_helper = 7")
    cells = ["import no_such_module", *READ[name], "1 / 0  # a demonstration"]
    path = notebook(tmp_path, *cells)
    tries = attempts_at(path)
    assert call(next(tries)) == 7
    tries.close()
    text = tmp_path / "answer.py"
    text.write_text(find.read(path).text)
    if name not in ("a notebook's main", "an attribute of __main__"):  # a file has neither
        tries = attempts_at(text)
        assert call(next(tries)) == 7, text.read_text()
        assert find.of_cells(cells, NAME).text == text.read_text()


CHECK = f"from grader import check\ncheck({NAME})"
# These answers return 7 only if all cells before the check have been run.
NOT_READ = {
    "what was changed after the check": ["REG = {'k': 7}", ANSWER, CHECK, "REG['k'] = 3"],
    "what was defined anew after the check": ["def k(): return 7", f"def {NAME}(): return k()", CHECK, "k = 3"],
    # Statements that change a value although they seem only to read it.
    "an attribute of a function": [
        "def k(): return getattr(k, 'value', 3)",
        "def other(): pass\nfor f in (k, other):\n    f.value = 7",
        f"def {NAME}(): return k()",
        CHECK,
    ],
    "what runs as text": [
        "REG = []\nimport numpy as np",
        "np.testing.measure('REG.append(7)')",
        f"def {NAME}(): return REG[0]",
        CHECK,
    ],
    "a state of a library's": [
        "import numpy as np",
        "print(np.random.seed(5))",
        "k = 7 if np.random.rand() == np.random.RandomState(5).rand() else 3",
        f"def {NAME}(): return k",
        CHECK,
    ],
    "exec of a variable": ["SOURCE = 'def k(): return h'", "h = 7\nexec(SOURCE)", f"def {NAME}(): return k()", CHECK],
}


def value(tried):
    try:
        return call(tried)
    except (LookupError, NameError, TypeError) as error:
        return error


@pytest.mark.parametrize("name", NOT_READ)
def test_a_repeated_check_runs_everything_above_the_answer(tmp_path, name):
    first, second = attempts_at(notebook(tmp_path, "1 / 0", *NOT_READ[name], "print(1 / 0)"))
    assert (value(first) != 7, value(second)) == (True, 7)


def test_a_second_try_leaves_out_checks_plots_and_magics(tmp_path):
    cells = [
        "from grader import check\nimport matplotlib.pyplot as plt, pathlib",
        "ran = pathlib.Path('ran')\ndef note(what): ran.write_text(what + (ran.read_text() if ran.exists() else ''))",
        f"def {NAME}(): return 7",
        "def look():\n    plt.plot(note('plot'))",
        "note('1'); look(); check(note('check')); display(note('shown'))",
        "%timeit note('timed')\nnote('2')\n1 / 0\nnote('3')",
        f"check({NAME}, note('check'))",
        "note('later')",
    ]
    tries = attempts_at(notebook(tmp_path, *cells))
    next(tries)
    assert not (tmp_path / "ran").exists()
    next(tries)
    assert (tmp_path / "ran").read_text() == "321"


def test_a_second_try_skips_a_call_that_raises(tmp_path):
    """The first try runs a call that may change what the answer reads, and stops if the call raises."""
    first, second = attempts_at(notebook(tmp_path, "REG = {'k': 7}", "REG.pop('j')", ANSWER))
    assert isinstance(first, Verdict) and call(second) == 7


@pytest.mark.parametrize(
    "cells",
    [
        [f"def {NAME}(): raise KeyError"],
        [f"import math\ndef {NAME}(): raise KeyError\ndef other(): pass\nk = 3", CHECK],
        [f"def {NAME}(): raise NotImplementedError", "print(3)", "import no_such_module"],
    ],
)
def test_there_is_no_second_try_where_it_would_be_the_same(tmp_path, cells):
    assert len(list(attempts_at(notebook(tmp_path, *cells)))) == 1


@pytest.mark.parametrize(
    "magic", ["\n\n!echo a \\\n  b", "%%time\n", "   \n%precision 3", ">>> 3\n>>> !ls", "len?\n\n\n"]
)
def test_lines_are_the_learners(tmp_path, magic):
    cell = f"{magic}\ndef {NAME}(): return 7\n{NAME} = no_such_name"
    (verdict,) = attempts_at(notebook(tmp_path, cell))
    assert f"page.ipynb, code cell 1, line {len(cell.splitlines())} (" in verdict.findings[0].source


def test_an_answer_that_is_no_function_is_reported_with_its_line(tmp_path):
    (verdict,) = attempts_at(notebook(tmp_path, "k = 1", f"!ls\n{NAME} = k"))
    assert f"{NAME} is an int, not a function (page.ipynb, code cell 2, line 2)." == verdict.findings[0].text


def test_a_name_that_is_not_on_the_page_is_reported_as_missing(tmp_path):
    for missing in ("import my_own_helper as k", "%run my_own_helper.py\nfrom_there = k"):
        verdict = next(attempts_at(notebook(tmp_path, f"{missing}\ndef {NAME}(): return k")))
        assert "my_own_helper" in verdict.findings[0].text and "put the missing code" in verdict.findings[0].next
