"""The live bytes at each step of a forward and a backward pass, as data, as a plot and as text."""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from rematscope.ir.source import Source
from rematscope.render.parts import Lines, Pictured
from rematscope.render.theme import COLOURS, KINDS, PLOT_GROUND, PLOT_INK
from rematscope.render.units import BYTES, SECONDS, aligned, bytes_text, seconds_text
from rematscope.render.view import View
from rematscope.seconds.roofline import TimeEstimate

# Residuals and recomputed values have the colors of their letters in the programs.
BANDS = {
    "parameters": KINDS["parameters"],
    "optimizer_state": KINDS["optimizer state"],
    "arguments": "#8c8c8c",
    "residuals": COLOURS["S"],
    "recomputed": COLOURS["R"],
    "gradients": KINDS["gradients"],
    "temporaries": KINDS["temporaries"],
}
_BARS = " ▁▂▃▄▅▆▇█"
_WIDTH = 60  # of the bars, so that a line has at most 80 columns


@dataclasses.dataclass(frozen=True)
class MemorySample:
    """The live bytes at one step of a `Timeline`.

    Attributes:
      operation: the operation that runs in this step, as a line of the program; or `"start"`, `"boundary"` (between the
        forward and the backward pass) or `"end"`.
      source: the user's source line of the operation, or None.
      arguments, residuals, recomputed, temporaries: the bytes of each kind on the device; see `liveness`.
      module: the module of the operation, from JAX's name stack; else "".
      parameters, optimizer_state, gradients: the bytes of these kinds, which are listed separately for a training step;
        0 for any other function.
      host: the bytes in host memory, which are not included in `nbytes`.
      seconds: the time of the operation in seconds, estimated by a roofline and summed over all its runs; 0 if no
        device was given.
    """

    operation: str
    source: Source | None
    arguments: int = 0
    residuals: int = 0
    recomputed: int = 0
    temporaries: int = 0
    module: str = ""
    parameters: int = 0
    optimizer_state: int = 0
    gradients: int = 0
    host: int = 0
    seconds: float = 0.0

    @functools.cached_property  # read several times by a plot
    def nbytes(self) -> int:
        """The total bytes on the device."""
        return sum(getattr(self, band) for band in BANDS)


class Timeline(Pictured):
    """The live bytes at each step of a forward and a backward pass, displayed as a plot with a table of its values.

    Attributes:
      title: the name of the function, and what the figures show.
      samples: one `MemorySample` per step.
      boundary: the index in `samples` of the step between the forward and the backward pass.
      roofline: the estimated time of both passes, if a device was given; the x axis of the plot is then time. Else
        None.
    """

    size = 7, 3.4

    def __init__(
        self, title: str, samples: Sequence[MemorySample], boundary: int, roofline: TimeEstimate | None = None
    ):
        self.title = title
        self.samples = tuple(samples)
        self.boundary = boundary
        self.roofline = roofline

    @functools.cached_property
    def peak(self) -> MemorySample:
        """The sample with the most live bytes; the first one if there are several."""
        return max(self.samples, key=lambda moment: moment.nbytes)

    @property
    def peak_bytes(self) -> int:
        """The live bytes at the peak."""
        return self.peak.nbytes

    def plot(self, ax) -> None:
        """Plot the bytes as a stacked area on matplotlib axes, with the boundary and the peak marked.

        If the axes share a scale with axes that already have a plot, both use the same unit and limits.
        """
        others = [other for other in ax.get_shared_y_axes().get_siblings(ax) if other.get_ylabel() in BYTES]
        unit = others[0].get_ylabel() if others else bytes_text(self.peak_bytes).split()[1]
        scale = BYTES[unit]
        places: Sequence[float] = range(len(self.samples))
        label, where = "steps", "mid"
        if self.roofline is not None:
            where = "post"
            label = seconds_text(self.roofline.step).split()[1]
            places = [start / SECONDS[label] for start in self._start_times()]
        bands = {band: [getattr(m, band) / scale for m in self.samples] for band in BANDS}
        shown = [band for band in BANDS if any(bands[band])]
        colours = [BANDS[band] for band in shown]
        host = [m.host / scale for m in self.samples]
        ax.stackplot(
            places,
            *(bands[band] for band in shown),
            labels=[band.replace("_", " ") for band in shown],
            colors=colours,
            step=where,
            linewidth=0,
        )
        if any(host):
            ax.step(places, host, where=where, color=PLOT_INK, linestyle=":", linewidth=1.5, label="host memory")
        ax.axvline(places[self.boundary], color=PLOT_INK, linestyle="--", linewidth=1)
        # Above the frame, where nothing is plotted. matplotlib places a title above the labels of an axis.
        above = ax.secondary_xaxis("top")
        above.set_xticks([places[self.boundary]], ["backward →"], ha="left", fontsize="small")
        above.tick_params(length=0, pad=2)
        self._label_peak(ax, places, scale)
        if self.roofline is None:
            ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set(xlabel=f"{label}: forward, then backward", ylabel=unit, title=self.title)
        top = max(1.2 * max(self.peak_bytes / scale, *host) or 1, *(other.get_ylim()[1] for other in others), 0)
        ax.set(xlim=(0, places[-1] or 1), ylim=(0, top))
        ax.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize="small")

    def _label_peak(self, ax, places: Sequence[float], scale: float) -> None:
        """Mark the peak with a label on a background, because the line of the boundary may be behind the label."""
        peak = self.samples.index(self.peak)
        place = places[peak], self.peak_bytes / scale
        ax.plot(*place, "v", color=PLOT_INK)
        side = "right" if place[0] > places[-1] / 2 else "left"
        ground = {"facecolor": PLOT_GROUND, "edgecolor": "none", "pad": 1}
        text = f"peak {bytes_text(self.peak_bytes)}"
        ax.annotate(text, place, (0, 7), textcoords="offset points", ha=side, bbox=ground)

    def outline(self, ax, below: "Timeline", label: str) -> None:
        """Plot the total bytes as a line on axes that already show the timeline `below`.

        The boundaries between the forward and the backward pass coincide.
        """
        scale = BYTES[ax.get_ylabel()]
        ends, own = ((0, t.boundary, len(t.samples) - 1) for t in (below, self))
        places = np.interp(range(len(self.samples)), own, ends)
        heights = [moment.nbytes / scale for moment in self.samples]
        ax.step(places, heights, where="mid", color=PLOT_INK, linewidth=1, label=label)
        ax.set(ylim=(0, max(ax.get_ylim()[1], 1.2 * max(heights))))
        ax.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize="small")

    def caption(self) -> str:
        return self.title

    def parts(self) -> Iterable[View]:
        return [Lines(self._text_lines())]

    def _text_lines(self) -> list[str]:
        peak, last = self.samples.index(self.peak), len(self.samples) - 1
        side = "forward" if peak <= self.boundary else "backward"
        source = "".join(f", {part}" for part in (self.peak.source, self.peak.module) if part)
        if self.roofline is not None:
            source += f", after {seconds_text(self._start_times()[peak])}"
        columns = {"start": 0, "boundary": self.boundary, "peak": peak, "end": last}
        titles = {"nbytes": "total", "host": "host memory"}
        rows = [["", *columns]]
        for band in (*BANDS, "nbytes", "host"):
            numbers = [getattr(self.samples[place], band) for place in columns.values()]
            if band in ("arguments", "nbytes") or any(getattr(m, band) for m in self.samples):
                rows.append([titles.get(band, band.replace("_", " ")), *map(bytes_text, numbers)])
        return [
            self.title,
            f"forward {self._sparkline_text()} backward",
            f"peak {bytes_text(self.peak_bytes)}, {side}, step {peak} of {last}: {self.peak.operation}{source}",
            "",
            *aligned(rows),
            *([] if self.roofline is None else ["", str(self.roofline)]),
        ]

    def _start_times(self) -> list[float]:
        """Return the seconds until each moment's operation starts."""
        return [0.0, *itertools.accumulate(moment.seconds for moment in self.samples)][:-1]

    def _sparkline_text(self) -> str:
        """Return one bar per step; with many steps, each bar shows the maximum of several."""
        heights = [moment.nbytes for moment in self.samples]
        most = max(heights) or 1
        stride = -(-len(heights) // _WIDTH)

        def bars(part):
            pieces = [max(part[i : i + stride]) for i in range(0, len(part), stride)]
            return "".join(_BARS[-(-piece * 8 // most)] for piece in pieces)

        return f"{bars(heights[: self.boundary + 1])}│{bars(heights[self.boundary + 1 :])}"
