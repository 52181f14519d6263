"""Show a check's verdict in a notebook, with buttons for the next steps."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from markupsafe import Markup

from grader.verdicts.verdict import Verdict
from grader.verdicts.views import Note, VerdictView, WithNotes
from rematscope.render import View

if TYPE_CHECKING:
    import ipywidgets

# JupyterLab marks a widget whose kernel has ended with this class. Without a kernel, buttons do not work.
SHEET = Markup("""<style>
.remat-lost { display: none; }
.jupyter-widgets-disconnected .remat-lost { display: block; }
.jupyter-widgets-disconnected .remat-buttons { display: none; }
.remat-buttons { flex-wrap: wrap; }
/* Otherwise a wide table makes all text as wide as itself, and cut off. */
.remat-panel :is(.jupyter-widgets, .widget-html-content) { min-width: 0; }
/* A narrow panel has an empty line for it from the start, so that nothing below moves when it is filled. */
.remat-busy-line { min-width: 13em; min-height: 28px; }
:is(.remat-busy, .remat-copy) .remat-result { opacity: 0.5; }
.jp-OutputArea-child:has(.remat-copy):has(~ .jp-OutputArea-child .remat-panel),
.jp-OutputArea-child:has(.remat-copy:empty) { display: none; }
/* When a button gets the focus, the browser also scrolls the start of its answer into view. */
.remat-buttons button { scroll-margin-bottom: 40vh; }
.remat-panel button:focus-visible { outline: 2px solid var(--jp-brand-color1, currentColor); outline-offset: 1px; }
</style>""")
_LOST = Note(
    "The kernel that ran this check has ended",
    "Your attempts are saved, but the buttons need the kernel. Choose Kernel → Restart Kernel and Run All Cells, then "
    "check again.",
)
# The copy of the last results is a plain output, because a widget appears only after JupyterLab has cleared the cell.
_COPY = Markup('<div class="remat-copy">{}</div>')
_SECONDS_TO_DRAW = 2
_BUTTON_WIDTH = "8.2em"  # wide enough for "Failing case …", and narrow enough for three buttons next to each other
_CHECKING = "Checking your answer …"


class Checked(WithNotes):
    """The result of a check, which displays its verdict; in a notebook, with buttons above it.

    Args:
      verdict: the verdict.
      notices: sentences that the learner must read, about progress that could not be saved.
      verbs: maps the buttons' labels to functions that return the view to show.
      next_steps: links to pages, shown below the verdict if the answer passed; None for no links.
    """

    def __init__(
        self,
        verdict: Verdict,
        notices: Iterable[str] = (),
        verbs: dict[str, Callable[[], View]] | None = None,
        next_steps: View | None = None,
    ):
        super().__init__(VerdictView(verdict), notices)
        self.verdict, self.next_steps, self._verbs = verdict, next_steps, verbs or {}
        self._panel: Panel | None = None

    @property
    def passed(self) -> bool:
        return self.verdict.passed

    def parts(self) -> Iterable[View]:
        return [*super().parts(), *([self.next_steps] if self.next_steps else [])]

    def verdict_html(self) -> Markup:
        """Return the verdict and the notices as HTML, without the next steps."""
        return Markup().join(Markup(part.html()) for part in super().parts())

    def widget(self) -> ipywidgets.VBox:
        """Return the panel as a widget."""
        return self.panel().widget

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        # A front end shows the richest form that it supports: the widget if its kernel runs, else HTML or text.
        twin = super()._repr_mimebundle_()
        return twin | self.widget()._repr_mimebundle_() | twin if self._verbs else twin

    @property
    def has_panel(self) -> bool:
        """Whether the check was shown with its panel."""
        return self._panel is not None

    def panel(self) -> Panel:
        """Return the panel that shows this check."""
        self._panel = self._panel or Panel(self, self._verbs)
        return self._panel


class Panel:
    """A panel with the buttons, their output, the verdict and the next steps.

    The buttons come first, so that they stay in place and in view, however long the verdict is.

    Args:
      checked: the check to show at first.
      verbs: see `Checked`.

    Attributes:
      widget: the panel as a widget.
    """

    def __init__(self, checked: Checked, verbs: dict[str, Callable[[], View]]):
        import ipywidgets

        self._busy_line = ipywidgets.HTML()
        self._busy_line.add_class("remat-busy-line")
        self._below_buttons, self._verdict = ipywidgets.HTML(), ipywidgets.HTML()
        # An Output widget instead of HTML, because JupyterLab opens links to notebooks without a reload only there.
        self._next_steps = ipywidgets.Output()
        for part in (self._below_buttons, self._verdict, self._next_steps):
            part.add_class("remat-result")
        self._show_checked(checked)
        buttons = ipywidgets.HBox([*(self._make_button(*verb) for verb in verbs.items()), self._busy_line])
        buttons.add_class("remat-buttons")
        lost = ipywidgets.HTML(SHEET + Markup('<div class="remat-lost" role="status">{}</div>').format(_LOST.html()))
        self.widget = ipywidgets.VBox([lost, buttons, self._below_buttons, self._verdict, self._next_steps])
        self.widget.add_class("remat-panel")

    def show_busy(self, words: str) -> None:
        """Dim the last results, which stay in place, and show that a check is running."""
        self._busy_line.value = Markup('<div role="status">{}</div>').format(words)
        self.widget.add_class("remat-busy")

    def show_idle(self) -> None:
        """Undo `show_busy`."""
        self._busy_line.value = ""
        self.widget.remove_class("remat-busy")

    def dimmed_html(self) -> Markup:
        """Return the panel's content as it looks while an answer is being checked."""
        page = '<div class="remat-busy-line" role="status">{}</div><div class="remat-result">{}</div>'
        return Markup(page).format(_CHECKING, Markup(self._below_buttons.value + self._verdict.value))

    def _show_checked(self, checked: Checked, announced: bool = False) -> None:
        status = Markup('<div role="status">{}</div>')
        verdict = status.format(checked.verdict_html()) if announced else checked.verdict_html()
        steps = checked.next_steps
        # The two values arrive one after the other. What is added comes first, so the panel never becomes smaller.
        if not steps:
            self._verdict.value = verdict
            self._next_steps.outputs = ()
            return
        data = {"text/html": str(steps.html()), "text/plain": str(steps)}
        self._next_steps.outputs = ({"output_type": "display_data", "data": data, "metadata": {}},)
        self._verdict.value = verdict

    def _make_button(self, label: str, verb: Callable[[], View]) -> ipywidgets.Button:
        import ipywidgets

        button = ipywidgets.Button(description=label, layout={"width": _BUTTON_WIDTH})

        def press(_):
            button.description = f"{label} …"  # the button is not disabled, because it would lose the keyboard focus
            self.show_busy(_CHECKING if label == "Check again" else "Loading …")
            if label == "Check again":  # immediately, so that nothing moves while the learner reads the new verdict
                self._below_buttons.value = ""
            try:
                try:
                    result = verb()
                except Exception as error:  # an exception in a callback would only appear in a log
                    result = Note(f"{label} failed", f"{type(error).__name__}: {error}")
                if isinstance(result, Checked):
                    self._show_checked(result, announced=True)
                else:
                    self._below_buttons.value = Markup('<div role="status">{}</div>').format(Markup(result.html()))
            finally:
                self.show_idle()
                button.description = label  # the last change, which shows tests that the result is complete

        button.on_click(press)
        return button


@contextlib.contextmanager
def dimmed_while_checking(last: Checked | None) -> Iterator[None]:
    """Show the last check's results, dimmed, in the output of the running cell until its new panel appears.

    JupyterLab clears a cell's output when the cell runs. Without these results, everything below would move up, and
    down again with the new verdict.
    """
    from IPython import get_ipython

    if last is None or not last.has_panel or not hasattr(get_ipython(), "kernel"):
        yield
        return
    from IPython.display import display

    copy = {"text/html": str(SHEET + _COPY.format(last.panel().dimmed_html())), "text/plain": _CHECKING}
    shown = display(copy, raw=True, display_id=True)
    try:
        yield
    finally:
        # A saved page does not contain the copy. The style sheet hides it as soon as the new panel appears.
        nothing = {"text/html": str(SHEET + _COPY.format("")), "text/plain": ""}
        removal = threading.Timer(_SECONDS_TO_DRAW, shown.update, (nothing,), {"raw": True})
        removal.daemon = True
        removal.start()
