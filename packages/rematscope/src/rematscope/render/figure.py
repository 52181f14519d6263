"""Plots as pictures with alternative texts, on a white background that a dark theme inverts."""

import base64
import contextlib
import html
import io
from collections.abc import Callable, Iterator
from typing import Any

from rematscope.render.theme import PICTURES, PLOT_GROUND, PLOT_INK

DPI = 100  # pixels per inch
_STYLE: Any = {
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "legend.facecolor"), PLOT_GROUND),
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), PLOT_INK),
    "legend.frameon": False,
}


@contextlib.contextmanager
def figure(
    width: float, height: float, rows: int = 1, columns: int = 1, alt: str = "", **options: Any
) -> Iterator[Any]:
    """Draw a picture in a `with` statement, which displays it at its end. This needs matplotlib and IPython.

    Args:
      width, height: in inches.
      rows, columns: the number of axes.
      alt: the alternative text of the picture; by default the titles, axes and labels of the plots.
      **options: as for matplotlib's `Figure.subplots`, such as `sharey=True`.

    Yields:
      The axes; an array of them if there are several.
    """
    from IPython.display import display
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        drawn = Figure(figsize=(width, height), layout="constrained")
        yield drawn.subplots(rows, columns, **options)
        about = alt or "; ".join(filter(None, map(_describe_axes, drawn.axes)))
        # Not through pyplot, and as HTML: JupyterLab gives no alternative text to a picture that is displayed as PNG.
        display({"text/html": PICTURES + _draw_image(drawn, about), "text/plain": about}, raw=True)


def picture(plot: Callable[[Any], None], size: tuple[float, float], about: str) -> str:
    """Return what `plot(ax)` draws as HTML, with `about` as its alternative text; `size` is in inches."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        drawn = Figure(figsize=size, layout="constrained")
        plot(drawn.subplots())
        return _draw_image(drawn, about)


def _draw_image(drawn: Any, about: str) -> str:
    page = io.BytesIO()
    drawn.savefig(page, dpi=DPI, metadata={"Software": None})
    source = f"data:image/png;base64,{base64.b64encode(page.getvalue()).decode()}"
    width, height = (round(DPI * inches) for inches in drawn.get_size_inches())  # before it is decoded
    return f'<img class="rs-picture" src="{source}" width="{width}" height="{height}" alt="{html.escape(about)}">'


def _describe_axes(ax: Any) -> str:
    """Return the title of a plot, its axes, and the labels of what is plotted."""
    axes = " against ".join(filter(None, (ax.get_ylabel(), ax.get_xlabel())))
    labels = ", ".join(dict.fromkeys(map(str, ax.get_legend_handles_labels()[1])))
    return ": ".join(filter(None, (ax.get_title(), ", ".join(filter(None, (axes, labels))))))
