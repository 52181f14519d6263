"""A question in a chapter that a reader answers before the page does."""

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

# What is no whole number is right to the two digits that one can tell without a pencil.
_NEAR = 0.05


class Prediction(View):
    """A question, room for an answer, and what is said to it.

    In a notebook it asks. Without a kernel, as on GitHub, the answer stands behind what a reader opens; in text alone
    it is not there.

    Args:
      question: the question, with code in backquotes.
      answer: computes what is right: a number, or one of the choices.
      choices: what a reader may choose from; none asks for a number.
    """

    def __init__(self, question: str, answer: Callable[[], object], choices: Iterable[str] = ()):
        self.question, self.choices = question, tuple(choices)
        self._compute = answer

    @functools.cached_property
    def answer(self) -> str:
        """What is right, as a reader would write it.

        Raises:
          ValueError: it is not one of the choices, or no number where there are none.
        """
        found = self._compute()
        if self.choices:
            if found not in self.choices:
                raise ValueError(f"The answer, {found!r}, is not one of the choices: {', '.join(self.choices)}.")
            return str(found)
        number = float(found)  # type: ignore[arg-type]
        return f"{number:.0f}" if number.is_integer() else f"{number:.3g}"

    def say(self, said: str) -> View:
        """Return the response to a reader's answer."""
        if self.choices:
            right, nearer = said == self.answer, ""
        else:
            try:
                number, wanted = float(re.sub("[ ,_]", "", said)), float(self.answer)
            except ValueError:
                return PredictionResult(f"`{said}` is not a number. Enter digits, such as 12 or 0.5.")
            right = math.isclose(number, wanted, rel_tol=0 if wanted.is_integer() else _NEAR)
            nearer = ": it is more" if number < wanted else ": it is less"
        return (
            PredictionResult(f"Right: {self.answer}.")
            if right
            else PredictionResult(f"Not {said}{nearer}.", self.answer)
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self._question_text().replace("`", ""))

    def html(self) -> Markup:
        # By the numbers of its characters: who looks at the page's source does not read it there.
        answer = "".join(f"&#{ord(character)};" for character in self.answer)
        answer = Markup(f"<details><summary>Answer</summary><p>{answer}</p></details>")
        return box(Markup("<p>{}</p>{}").format(text_html(self._question_text()), answer))

    def _question_text(self) -> str:
        choices = f" ({' · '.join(self.choices)})" if self.choices else ""
        return f"What do you think? {self.question}{choices}"

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        # A front end shows the richest form that it can: the widget where its model lives, else HTML or text.
        twin = super()._repr_mimebundle_()
        return twin | self.widget()._repr_mimebundle_() | twin

    def widget(self) -> ipywidgets.VBox:
        """Return the question, a button for each choice or a field for a number, and room for what is said to it."""
        import ipywidgets

        asked = ipywidgets.HTML(box(Markup("<p>{}</p>").format(text_html(f"What do you think? {self.question}"))))
        below = ipywidgets.HTML()

        def check(said: str) -> None:
            if said.strip():
                below.value = Markup('<div role="status">{}</div>').format(self.say(said.strip()).html())

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
        return panel


class PredictionResult(View):
    """What is said to an answer, and the right one for whoever asks for it."""

    def __init__(self, sentence: str, answer: str | None = None):
        self.sentence, self.answer = sentence, answer

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.sentence.replace("`", ""))

    def html(self) -> Markup:
        if self.answer is None:
            return box(Markup("<p>{}</p>").format(text_html(self.sentence)))
        opened = Markup("<details><summary>Show the answer</summary><p>{}</p></details>")
        return box(Markup("<p>{}</p>{}").format(text_html(self.sentence), opened.format(self.answer)))
