"""Show the case that a check failed, and run the learner's answer in it."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from markupsafe import Markup
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.syntax import Syntax
from rich.text import Text

import rematscope
from grader.exercises import registry
from grader.exercises.spec import Case, Question
from grader.tracing.apply import applied
from grader.util.jax_settings import default_settings
from grader.verdicts.verdict import Finding
from grader.verdicts.views import Note, python_html
from rematscope.render import View

_CALL = """\
from grader import failing_case

case = failing_case()
case.function(*case.arguments)"""
_PRINT = "rematscope.print_fwd_bwd(case.function, *case.arguments)  # after `import rematscope`"
_LONGEST = 300  # the number of characters of an argument or a result that the view shows


class FailingCase(View):
    """A case that an answer failed, and what the answer does in it.

    Args:
      exercise: the exercise's name.
      answer: the learner's function.
      case: the case or question.
      finding: the finding that the case shows.
      inputs: the seed of the inputs.

    Attributes:
      name: the case's name, as in the finding.
      function: the answer as the grader calls it in this case: for example under `jax.vmap`, or applied to a function
        of the grader.
      arguments: the arguments of `function`. Arrays have the shapes and dtypes of the case, and random elements.
      code: code to copy, which runs the answer in this case.
    """

    @default_settings()
    def __init__(self, exercise: str, answer: Callable, case: Case | Question, finding: Finding, inputs: int):
        self.name, self._finding = case.name, finding
        self.function: Callable
        self.arguments: tuple[Any, ...]
        if isinstance(case, Question):
            self.function, self.arguments = lambda *arguments: case.ask(answer(*arguments)), case.arguments
            self.code = _CALL
        else:
            rng, sample = np.random.default_rng(inputs), registry.expect(exercise).sample_input
            self.function = _apply_answer(answer, case)
            self.arguments = tuple(sample(rng, argument) for argument in case.arguments)
            self.code = f"{_CALL}\n{_PRINT}"
        self._result = self._run_answer(isinstance(case, Case))

    def _run_answer(self, traced: bool) -> View:
        """Return a view of what the answer saves in a case, or of what it returns for a question, or its exception."""
        try:
            if traced:
                return rematscope.residual_table(self.function, *self.arguments)
            return Note("Your answer's result", f"`{_truncate_end(repr(self.function(*self.arguments)))}`")
        except (Exception, SystemExit) as error:
            return Note("Your answer raises an exception", f"`{_truncate_end(f'{type(error).__name__}: {error}')}`")

    def parts(self) -> Iterable[View]:
        arguments = ", ".join(map(_argument_words, self.arguments)) or "none"
        yield Note(
            f"Failing case: {self.name}", f"The last check found: {self._finding.text}", f"Arguments: {arguments}."
        )
        yield _Code(self.code)
        yield self._result


def _apply_answer(answer: Callable, case: Case) -> Callable:
    """Return the answer as the grader calls it in a case. If that raises an exception, the returned function does."""
    try:
        return applied(answer, case)
    except (Exception, SystemExit):
        return lambda *arguments: applied(answer, case)(*arguments)


class _Code(View):
    """Python code to copy."""

    def __init__(self, text: str):
        self.text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("To run it yourself:")
        yield Padding(Syntax(self.text, "python", theme="github-dark", word_wrap=True), (0, 0, 1, 2))

    def html(self) -> Markup:
        return Markup("<p>To run it yourself:</p>{}").format(python_html(self.text))


def _argument_words(argument: Any) -> str:
    if isinstance(argument, np.ndarray):
        return f"{argument.dtype}[{','.join(map(str, argument.shape))}]"
    name = getattr(argument, "__name__", None)
    return f"the function {name}" if callable(argument) and name else f"`{_truncate_end(repr(argument))}`"


def _truncate_end(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
