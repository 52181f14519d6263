"""Interactive views: a pane that highlights values, and controls above any view."""

import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path

from rematscope.render.parts import needs
from rematscope.render.view import View, in_notebook, show


def live(view: Callable[..., View], **controls) -> None:
    """Show `view(**values)` below widgets that set the values, in a notebook.

    Without widgets (on GitHub, on a saved page, in a terminal), the view for the initial values is shown.

    Args:
      view: a function of the controls' values. An `InteractivePrograms` that it returns highlights values.
      **controls: an ipywidgets control for each argument of `view`; there may be none.
    """

    def current() -> View:
        return view(**{name: control.value for name, control in controls.items()})

    if not widgets_run():
        show_still(current())
        return
    import ipywidgets
    from IPython.display import display

    pane = _widget_class()(**current().pane())

    def update(_change):
        with pane.hold_sync():
            for name, value in current().pane().items():
                setattr(pane, name, value)

    for control in controls.values():
        control.observe(update, "value")
    row = ipywidgets.Box(list(controls.values()), layout={"flex_flow": "row wrap"})
    page = ipywidgets.VBox([row, pane] if controls else [pane])
    # A front end shows the richest form that it supports: the widget if its kernel runs, else HTML or text.
    display({**page._repr_mimebundle_(), **current()._repr_mimebundle_()}, raw=True)


def show_still(view: View) -> None:
    """Show a view without widgets. In a notebook, also say which extra to install for them."""
    show(view)
    if in_notebook():
        show(needs("notebook", "Controls and values that light up take"))


def widgets_run() -> bool:
    """Return whether widgets can be shown: in a notebook, with the packages for widgets installed."""
    return in_notebook() and all(importlib.util.find_spec(name) for name in ("ipywidgets", "anywidget"))


@functools.cache
def _widget_class():
    import anywidget  # here, because tracing alone needs no widgets
    import traitlets

    class LinkedPane(anywidget.AnyWidget):
        _esm = Path(__file__).with_suffix(".js")
        _css = Path(__file__).with_suffix(".css")
        html = traitlets.Unicode().tag(sync=True)
        notes = traitlets.List(traitlets.Unicode()).tag(sync=True)
        idle = traitlets.Unicode().tag(sync=True)

    return LinkedPane
