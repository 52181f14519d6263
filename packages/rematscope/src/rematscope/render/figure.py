"""Pictures on a clear ground, in ink that is read on a light page and on a dark one."""

import base64
import contextlib
import io
from collections.abc import Callable, Iterator
from typing import Any

# As far from white as from the black of JupyterLab's dark theme: a contrast of 4.3 with either.
INK = "#797979"
DPI = 100  # a picture's pixels an inch
_STYLE: Any = {
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "legend.facecolor"), "none"),
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    "legend.frameon": False,
}


@contextlib.contextmanager
def figure(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> Iterator[Any]:
    """A picture that is drawn in a `with` statement, and shown at its end. It takes matplotlib and IPython.

    Args:
      width, height: in inches.
      rows, columns: how many axes there are.
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
        titles = [ax.get_title() or ax.get_ylabel() for ax in drawn.axes]
        # Not through pyplot: a notebook would put white behind a clear ground in the dark theme.
        display(
            {"image/png": _encode_png(drawn), "text/plain": f"picture: {', '.join(filter(None, titles))}"}, raw=True
        )


def png(plot: Callable[[Any], None], size: tuple[float, float]) -> str:
    """What `plot(ax)` draws, as a base64 text; `size` is in inches."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        drawn = Figure(figsize=size, layout="constrained")
        plot(drawn.subplots())
        return _encode_png(drawn)


def _encode_png(drawn: Any) -> str:
    page = io.BytesIO()
    drawn.savefig(page, dpi=DPI, metadata={"Software": None})
    return base64.b64encode(page.getvalue()).decode()
