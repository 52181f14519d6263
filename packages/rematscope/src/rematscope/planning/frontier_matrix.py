"""The names that each point of a frontier saves, as a matrix in text."""

import textwrap
from collections.abc import Iterable, Sequence

from rematscope.planning.points import Point, spread
from rematscope.render.html import escaped, page
from rematscope.render.parts import Lines
from rematscope.render.view import View

_COLUMNS, _MOST_COLUMNS = 72, 500  # points that the matrix shows, as text and in a notebook


class SavedNamesMatrix(View):
    """The names that each point saves: a row for each name, a column for each point, by increasing bytes.

    Attributes:
      rows: name → for each point, whether it saves the name; then those of the policies that are combined with names.
    """

    def __init__(self, names: Sequence[str], points: Sequence[Point]):
        self.rows = {name: tuple(name in point.names for point in points) for name in names}
        for label in dict.fromkeys(point.with_policy for point in points if point.with_policy):
            self.rows[f"policy {label}"] = tuple(point.with_policy == label for point in points)
        self._count = len(points)

    def parts(self) -> Iterable[View]:
        return [Lines(self._matrix_lines())]

    def html(self) -> str:
        shown = spread(self._count, _MOST_COLUMNS)
        style = 'style="white-space: pre; text-align: left"'
        (_, scale), *body = self._matrix_cells(shown)
        lines = [f'<tr><th scope="col">saved</th><th scope="col" {style}>{scale}</th></tr>']
        for names, marks in body:
            lines.append(f'<tr><th scope="row">{escaped(", ".join(names))}</th><td {style}>{marks}</td></tr>')
        table = f'<table class="rs-table"><tbody>{"".join(lines)}</tbody></table>'
        return page(f'<div style="overflow-x: auto">{table}</div><p>{escaped(self._matrix_caption(shown))}</p>')

    def _matrix_caption(self, shown: list[int]) -> str:
        if len(shown) == self._count:
            return f"■ saved; one column per choice ({self._count}), by increasing saved bytes"
        return f"■ saved; {len(shown)} of {self._count} choices, by increasing saved bytes; all are in .matrix.rows"

    def _matrix_cells(self, shown: list[int]) -> list[tuple[tuple[str, ...], str]]:
        """Return the numbers of the points, then a row for the names that are saved at the same points."""
        scale = ""
        for place, i in enumerate(shown):
            number = str(i + 1)
            if (place == 0 or (place + 1) % 10 == 0) and len(scale) <= place and place + len(number) <= len(shown):
                scale = scale.ljust(place) + number
        alike: dict[str, list[str]] = {}
        for name, saved in self.rows.items():
            alike.setdefault("".join("·■"[saved[i]] for i in shown), []).append(name)
        return [((), scale), *((tuple(names), marks) for marks, names in alike.items())]

    def _matrix_lines(self) -> list[str]:
        shown = spread(self._count, _COLUMNS)
        cells = [(textwrap.wrap(", ".join(names), 24) or [""], marks) for names, marks in self._matrix_cells(shown)]
        width = max(len(line) for names, _ in cells for line in names)
        lines = []
        for (first, *rest), marks in cells:
            lines += [f"{first:{width}}  {marks}".rstrip(), *rest]
        return [*lines, self._matrix_caption(shown)]
