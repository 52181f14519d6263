"""Questions about exceptions in a learner's code, by the messages of JAX and Python for common mistakes.

The patterns and questions are data: `error_questions.toml` next to this file.
"""

import functools
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

# Pairs of a regular expression and a question; the first match applies. An exercise's patterns are searched for in the
# message, and the patterns here also in the source line.
Questions = Sequence[tuple[str, str]]

# The end of every finding about an answer's value when no gradient is taken, and the question to ask then.
UNDIFFERENTIATED = "when it is called without jax.grad"
OF_THE_PRIMAL = (
    "Without jax.grad, JAX runs the function that jax.custom_vjp or jax.custom_jvp wraps, and none of its rules. Does "
    "that function return the same value as the rules?"
)

_OF_RULES: Questions = ((UNDIFFERENTIATED, OF_THE_PRIMAL),)
# For all other exceptions.
OTHERWISE = "Call your answer in a new cell. Which line raises the error, and what are the values on that line?"


def about_exception(message: str, source: str | None = None, exercises: Questions = ()) -> str | None:
    """Return the question about an exception, or None for an uncommon exception.

    Args:
      message: the exception's type and message.
      source: the source line that raised it, if known.
      exercises: the exercise's own questions.
    """
    text = f"{message}\n{source or ''}"
    first = _first_match(_OF_RULES, message) or _first_match(_load_table("checkpoint"), text)
    first = first or _first_match(exercises, message)
    return first or _first_match((*_load_table("jax"), *_load_table("python")), text)


def about_return(text: str, exercises: Questions = ()) -> str | None:
    """Return the question about a wrong return value, given the finding's text. The arguments are as for
    `about_exception`."""
    return _first_match((*_OF_RULES, *exercises, *_load_table("returns")), text)


@functools.cache
def _load_table(table: str) -> Questions:
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return tuple((each["pattern"], each["question"]) for each in tables[table])


def _first_match(questions: Questions, text: str) -> str | None:
    return next((question for pattern, question in questions if re.search(pattern, text)), None)
