"""Questions in a chapter that a reader answers before the page shows the answer."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from markupsafe import Markup
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from grader.learner.panel import SHEET
from grader.verdicts.views import box, text_html
from rematscope.render import View

if TYPE_CHECKING:
    import ipywidgets

# The relative tolerance for answers that are not integers; it accepts an estimate made without pencil and paper.
_NEAR = 0.05

# Hides the outputs of the code cells below a question, and the prose up to the next heading, until the reader gives the
# right answer or opens it. Front ends that drop styles (GitHub), or show each output in a frame of its own (Colab, VS
# Code), show everything. In the book, which has other elements, `book/static/book.js` does the same.
_HIDE_WHAT_FOLLOWS = """<style>
@media screen {
  .jp-Cell:has(.remat-asks):not(:has(.remat-answered, .remat-answer[open])) {
    & + .jp-CodeCell:not(.jp-mod-noOutputs),
    & + .jp-CodeCell + .jp-CodeCell:not(.jp-mod-noOutputs, :has(.remat-asks)) {
      .jp-OutputArea { display: none; }
      .jp-Cell-outputWrapper::before {
        content: "Hidden until you answer the question above"; font-style: italic;
        padding: 0.25em calc(var(--jp-cell-prompt-width) + 1em);
        color: var(--jp-ui-font-color2); font-family: var(--jp-ui-font-family); font-size: var(--jp-ui-font-size1);
      }
    }
    & + .jp-CodeCell + .jp-MarkdownCell,
    & + .jp-CodeCell + .jp-CodeCell:not(:has(.remat-asks)) + .jp-MarkdownCell {
      .jp-RenderedMarkdown > :not(h2, h2 ~ *) { display: none; }
    }
  }
}
</style>"""
_HIDE_WHAT_FOLLOWS = Markup(" ".join(_HIDE_WHAT_FOLLOWS.split()))  # one line in a stored page


class Prediction(View):
    """A question with a field for the answer and the response to it.

    A notebook asks the question and checks the answer. Without a kernel, for example on GitHub, the reader can open the
    answer. Plain text does not show the answer. JupyterLab and the book hide the following outputs until the question
    is answered.

    Args:
      question: the question, with code in backquotes.
      answer: computes the right answer: a number, or one of the choices.
      choices: the choices; if there are none, the answer is a number.
    """

    def __init__(self, question: str, answer: Callable[[], object], choices: Iterable[str] = ()):
        self.question, self.choices = question, tuple(choices)
        self._compute = answer

    @functools.cached_property
    def answer(self) -> str:
        """The right answer, as a reader would write it.

        Raises:
          ValueError: if the answer is not one of the choices or, without choices, not a number.
        """
        found = self._compute()
        if self.choices:
            if found not in self.choices:
                raise ValueError(f"The answer, {found!r}, is not one of the choices: {', '.join(self.choices)}.")
            return str(found)
        number = float(found)  # type: ignore[arg-type]
        return f"{number:.0f}" if number.is_integer() else f"{number:.3g}"

    def respond(self, given: str) -> PredictionResult:
        """Return the response to a reader's answer."""
        if self.choices:
            right, nearer = given == self.answer, ""
        else:
            try:
                number, wanted = float(re.sub("[ ,_]", "", given)), float(self.answer)
            except ValueError:
                return PredictionResult(f"`{given}` is not a number. Enter digits, such as 12 or 0.5.", self.answer)
            right = math.isclose(number, wanted, rel_tol=0 if wanted.is_integer() else _NEAR)
            nearer = ": it is more" if number < wanted else ": it is less"
        if right:
            return PredictionResult(f"Right: {self.answer}.", right=True)
        return PredictionResult(f"Not {given}{nearer}.", self.answer)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self._question_text().replace("`", ""))

    def html(self) -> Markup:
        question = box(Markup("<p>{}</p>{}").format(text_html(self._question_text()), _answer_html(self.answer)))
        return _HIDE_WHAT_FOLLOWS + Markup('<div class="remat-asks">{}</div>').format(question)

    def _question_text(self) -> str:
        choices = f" ({' · '.join(self.choices)})" if self.choices else ""
        return f"What do you think? {self.question}{choices}"

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        # A front end shows the richest form that it supports: the widget if its kernel runs, else HTML or text.
        twin = super()._repr_mimebundle_()
        return twin | self.widget()._repr_mimebundle_() | twin

    def widget(self) -> ipywidgets.VBox:
        """Return a widget with the question, a button per choice or a field for a number, and the response."""
        import ipywidgets

        asked = ipywidgets.HTML(box(Markup("<p>{}</p>").format(text_html(f"What do you think? {self.question}"))))
        below = ipywidgets.HTML(box(_answer_html(self.answer)))

        def check(given: str) -> None:
            if given.strip():
                result = self.respond(given.strip())
                below.value = Markup('<div role="status">{}</div>').format(result.html())
                if result.right:
                    panel.add_class("remat-answered")

        if self.choices:
            controls = [ipywidgets.Button(description=choice) for choice in self.choices]
            for button in controls:
                button.layout.width = "auto"
                button.on_click(lambda pressed: check(pressed.description))
        else:
            field = ipywidgets.Text(description="number", continuous_update=False, layout={"width": "16em"})
            button = ipywidgets.Button(description="Check", layout={"width": "auto"})
            field.observe(lambda change: check(change["new"]), "value")  # Enter, or leaving the field
            button.on_click(lambda _: check(field.value))
            controls = [field, button]
        row = ipywidgets.Box(controls, layout={"flex_flow": "row wrap"})
        row.add_class("remat-buttons")
        lost = ipywidgets.HTML(SHEET + Markup('<div class="remat-lost">{}</div>').format(self.html()))
        panel = ipywidgets.VBox([asked, row, below, lost])
        panel.add_class("remat-panel")
        panel.add_class("remat-asks")
        return panel


def _answer_html(answer: str) -> Markup:
    # As character references, so that the answer cannot be read in the source of the page.
    hidden = Markup("".join(f"&#{ord(character)};" for character in answer))
    return Markup('<details class="remat-answer"><summary>Show the answer</summary><p>{}</p></details>').format(hidden)


class PredictionResult(View):
    """The response to an answer: a sentence, and the right answer for a reader who opens it.

    Args:
      sentence: the response.
      answer: the right answer, if the given answer is not right.
      right: whether the given answer is right.
    """

    def __init__(self, sentence: str, answer: str | None = None, right: bool = False):
        self.sentence, self.answer, self.right = sentence, answer, right

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.sentence.replace("`", ""))

    def html(self) -> Markup:
        opened = "" if self.answer is None else _answer_html(self.answer)
        return box(Markup("<p>{}</p>{}").format(text_html(self.sentence), opened))
