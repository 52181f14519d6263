"""Show a check's verdict in a notebook, with buttons for the next steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from markupsafe import Markup

from grader.verdicts.verdict import Verdict
from grader.verdicts.views import Note, VerdictView, WithNotes
from rematscope.render import View

if TYPE_CHECKING:
    import ipywidgets

# JupyterLab marks a widget whose kernel is gone with this class; without a kernel no button can answer for itself.
SHEET = Markup("""<style>
.remat-lost { display: none; }
.jupyter-widgets-disconnected .remat-lost { display: block; }
.jupyter-widgets-disconnected .remat-buttons { display: none; }
/* Who comes to a button by keyboard sees what it will say begin: the browser scrolls this much of it into view, too. */
.remat-buttons button { scroll-margin-bottom: 40vh; }
.remat-panel button:focus-visible { outline: 2px solid var(--jp-brand-color1, currentColor); outline-offset: 1px; }
</style>""")
_LOST = Note(
    "The kernel that ran this check has ended",
    "Your attempts are saved, but the buttons need the kernel. Choose Kernel → Restart Kernel and Run All Cells, then "
    "check again.",
)


class Checked(WithNotes):
    """A check that was made: shows its verdict, in a notebook with buttons above it.

    Args:
      verdict: the verdict.
      notices: sentences that the learner must read besides, about what could not be written down.
      verbs: what the buttons do: each label's function returns what it has to show.
    """

    def __init__(self, verdict: Verdict, notices: Iterable[str] = (), verbs: dict[str, Callable] | None = None):
        super().__init__(VerdictView(verdict), notices)
        self.verdict, self._verbs = verdict, verbs or {}

    @property
    def passed(self) -> bool:
        return self.verdict.passed

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        # A front end shows the richest form that it can: the widget where its model lives, else the same as HTML, else
        # as text.
        twin = super()._repr_mimebundle_()
        return twin | self.widget()._repr_mimebundle_() | twin if self._verbs else twin

    def widget(self) -> ipywidgets.VBox:
        """Return the panel: the buttons, what they have to say, and the verdict.

        The buttons come first, so that they stay where they are, and in view, however long a verdict gets.
        """
        import ipywidgets

        page, said = ipywidgets.HTML(self.html()), ipywidgets.HTML()
        buttons = ipywidgets.HBox([_make_button(label, verb, page, said) for label, verb in self._verbs.items()])
        buttons.add_class("remat-buttons")
        lost = ipywidgets.HTML(SHEET + Markup('<div class="remat-lost" role="status">{}</div>').format(_LOST.html()))
        panel = ipywidgets.VBox([lost, buttons, said, page])
        panel.add_class("remat-panel")
        return panel


def _make_button(label: str, verb: Callable[[], View], page, said):
    import ipywidgets

    button = ipywidgets.Button(description=label)

    def press(_):
        button.description = f"{label} …"  # and not disabled, which would take the keyboard's focus away
        said.value = ""  # at once: what stands below must not move when somebody has begun to read again
        try:
            try:
                result = verb()
            except Exception as error:  # in a callback it would go to a log that nobody sees
                result = Note(f"{label} did not work", f"{type(error).__name__}: {error}")
            # A new verdict takes the old one's place.
            where = page if isinstance(result, Checked) else said
            where.value = Markup('<div role="status">{}</div>').format(Markup(result.html()))
        finally:
            button.description = label  # whoever waits for it then reads the new verdict

    button.on_click(press)
    return button
