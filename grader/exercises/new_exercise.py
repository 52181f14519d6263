"""Write the four parts of a new exercise as stubs: `python -m grader new NAME`.

Lines that begin with `STUB:` say what to write there. The tests fail as long as such lines remain.
"""

import importlib.util
import json
import keyword
from pathlib import Path
from typing import Any

from rematscope.render import write_whole

ROOT = Path(__file__).parents[2]


class NewExerciseError(Exception):
    """Raised if a new exercise cannot have this name; the message gives the reason and the next step."""


def make(name: str) -> list[Path]:
    """Write the stubs of an exercise: its page, worked answer, catalog entry, and test answers.

    Args:
      name: the exercise's name, which is also the name of the function that learners write.

    Returns:
      The files that were written. The page's number is one more than the highest existing number.

    Raises:
      NewExerciseError: if the name is not valid for a function or is already used, or if this is not a clone of the
        repository.
    """
    if not (ROOT / "tests").is_dir():
        raise NewExerciseError(
            f"{ROOT} has no tests, and an exercise needs some. Clone the repository, and run the command there."
        )
    if not (name.isidentifier() and name.islower()) or keyword.iskeyword(name):
        raise NewExerciseError(
            f"{name!r} is not a valid name. Give the name of a function in lower case, such as save_named."
        )
    pages = [path.stem.partition("_") for path in (ROOT / "exercises").glob("[0-9][0-9]_*.ipynb")]
    number = max((int(number) for number, _, _ in pages), default=0) + 1
    texts = _file_texts(name, number)
    taken = [path for path in texts if path.exists()]
    if taken or name in [page for _, _, page in pages]:
        raise NewExerciseError(f"An exercise {name}, or a part of one, already exists. Choose another name.")
    # Tests import modules from a folder with this name, which must not hide an installed module.
    if importlib.util.find_spec(name):
        raise NewExerciseError(f"{name} is the name of an installed module. Choose another name.")
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.replace("NAME", name).replace("NUMBER", str(number)))
    return list(texts)


def _file_texts(name: str, number: int) -> dict[Path, str]:
    entry, answers = ROOT / "grader" / "catalog" / name, ROOT / "tests" / "grader" / "catalog" / name
    return {
        ROOT / "exercises" / f"{number:02}_{name}.ipynb": _notebook_text(f"{number:02}_{name}"),
        ROOT / "solutions" / f"{name}.py": _SOLUTION,
        entry / "__init__.py": _ENTRY,
        entry / "task.py": _TASK,
        entry / "expect.py": _EXPECT,
        entry / "feedback.toml": _FEEDBACK,
        answers / "right.py": _RIGHT,
        answers / "wrong.py": _WRONG,
    }


def _notebook_text(stem: str) -> str:
    cells = []
    for index, (kind, source) in enumerate(_PAGE):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"{stem[:40]}-{index}", "metadata": {}}
        cell |= {"execution_count": None, "outputs": []} if kind == "code" else {}
        cells.append(cell | {"source": source.strip().splitlines(keepends=True)})
    metadata = {"kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}}
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


_PAGE = [
    (
        "markdown",
        """
# Exercise NUMBER · STUB: its title

| difficulty | time | you need |
|---|---|---|
| ●●○○○ | 15 minutes | [1 · Residuals](../notebooks/01_residuals.ipynb) |
""",
    ),
    ("markdown", "## Why this matters\n\nSTUB: why a learner should be able to do this, in a few sentences."),
    ("markdown", "## A mini-example\n\nSTUB: an example smaller than the problem, which runs and shows the idea."),
    ("code", "import jax\nimport jax.numpy as jnp"),
    ("markdown", "## Common pitfalls\n\nSTUB: common mistakes."),
    (
        "markdown",
        """
## The problem

Write `NAME(x)`. STUB: what it computes, and what it saves and recomputes when it is differentiated.

| argument | shape | range |
|---|---|---|
| `x` | `(n,)` | `n`: 1 to 9 |

STUB: each number and choice that may vary, with its range, as `ranges` in task.py has it; the grader draws its own.
""",
    ),
    ("code", 'def NAME(x):\n    """STUB: what it returns."""\n    raise NotImplementedError("your turn")'),
    ("code", "from grader import check, failing_case, hint, solution\n\ncheck(NAME)"),
    (
        "markdown",
        """
## Stuck?

The buttons above the verdict show a hint, the failing case, or a worked answer. They call `hint()`, `failing_case()`
and `solution()`, which [Checking answers](../docs/checking.md) explains.
""",
    ),
]

_SOLUTION = '''"""Worked answer to exercise NUMBER: STUB: what it shows, and why it is right, in a few paragraphs."""


def NAME(x):
    """STUB: what it computes, with the shapes of its arguments and of its result."""
    raise NotImplementedError
'''

_ENTRY = '"""Exercise NUMBER: STUB: the task, in one line."""\n'

_TASK = '''"""The cases in which an answer is tested."""

import jax
import jax.numpy as jnp

from grader.exercises.spec import Case, Integers

# STUB: the ranges and the call, as on the page.
ranges = {"n": Integers(1, 9)}
signature = "NAME(x)"


def cases(rng):
    """Return a case for each end of the range, and one for a value between them."""
    # STUB: everything that the page allows and that distinguishes answers: sizes, dtypes, jax.vmap, jax.jit.
    return tuple(Case(f"{n} numbers", _shapes(n), structure={"n": n}) for n in (1, int(rng.integers(2, 9)), 9))


def _shapes(n):
    return (jax.ShapeDtypeStruct((n,), jnp.float32),)


shown = Case("at the page's shapes", _shapes(4))
'''

_EXPECT = '''"""The expected results of an answer. Only the judge reads this module."""

import jax.numpy as jnp

from grader.exercises.feedback import read_feedback
from grader.exercises.requirements import Saves

feedback = read_feedback(__file__)


def reference(x):
    """Return the result, and the values that an answer might save, by their names in findings."""
    # STUB: what an answer computes.
    return jnp.sum(jnp.sin(x)), {"the cosine": jnp.cos(x)}


def sample_input(rng, argument):
    """Return an input for which the named values differ by much more than rounding errors."""
    return rng.uniform(0.5, 1.5, argument.shape).astype(argument.dtype)


# STUB: functions that compute common wrong results: `feedback.mistake("its_key_in_feedback_toml", function)`.
mistakes = ()


def requirements(case):
    # STUB: what an answer may save and recompute in a case. For each requirement, some wrong answer violates only it.
    return [[Saves(("the cosine",), too_much="Which other value is saved?")]]
'''

_FEEDBACK = """# The texts of the feedback on answers to NAME. Answers cannot read them.

# STUB: at least three hints. The first and the last apply to every finding, the others only to certain findings.
[hints.first_step]
text = "Which question leads to the first step?"

# STUB: for each known mistake in expect.py, `[mistakes.its_key]` with `description` and `hint`; for common exceptions,
# `[[error_questions]]` with `pattern` (a regular expression) and `question`.
"""

_RIGHT = '''"""Right answers to NAME, each written differently."""

from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes

# STUB: at least three functions, each below `@passes`.
'''

_WRONG = '''"""Wrong answers to NAME, each with the finding that must name its mistake and the key of the first hint."""

from sample_answers import Answers

WRONG = Answers()
fails_with = WRONG.fails_with

# STUB: at least five functions, each below `@fails_with("also saved", "words of the finding", hint="first_step")`.
'''
