"""Views that answer: a pane that lights values up, and controls above any view."""

import functools
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from rematscope.render.parts import show


def live(view: Callable, **controls) -> None:
    """Shows `view(**values)` under widgets that set the values, in a notebook. A view may be lively without any.

    Where no widget runs (on GitHub, in a page that was stored, in a terminal), `view` is shown for the first values.

    Args:
      view: a function of the controls' values that returns something that displays itself. A `Linked` lights up.
      **controls: an ipywidgets control for each argument of `view`.
    """

    def current():
        return view(**{name: control.value for name, control in controls.items()})

    if not Console().is_jupyter:
        show(current())
        return
    import ipywidgets
    from IPython.display import display

    from rematscope.render.widget import widget

    def state() -> dict:
        shown = current()
        return shown.pane() if hasattr(shown, "pane") else {"html": shown._repr_mimebundle_()["text/html"]}

    pane = widget(**state())

    def update(_change):
        with pane.hold_sync():
            for name, value in state().items():
                setattr(pane, name, value)

    for control in controls.values():
        control.observe(update, "value")
    row = ipywidgets.Box(list(controls.values()), layout={"flex_flow": "row wrap"})
    page = ipywidgets.VBox([row, pane] if controls else [pane])
    # A front end shows the richest form that it can: the widget where its model lives, else the twin.
    display({**page._repr_mimebundle_(), **current()._repr_mimebundle_()}, raw=True)


def widget(**state):
    """A pane in which values light up, in the state that `Linked.pane` returns."""
    return _widget_class()(**state)


@functools.cache
def _widget_class():
    import anywidget  # late: whoever only traces needs no widgets
    import traitlets

    class LinkedPane(anywidget.AnyWidget):
        _esm = Path(__file__).with_suffix(".js")
        _css = Path(__file__).with_suffix(".css")
        html = traitlets.Unicode().tag(sync=True)
        notes = traitlets.List(traitlets.Unicode()).tag(sync=True)
        idle = traitlets.Unicode().tag(sync=True)

    return LinkedPane
