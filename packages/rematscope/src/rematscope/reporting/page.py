"""The report as one self-contained page, with pictures as SVG that a script makes interactive."""

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from rematscope.render.theme import KINDS as KIND_COLORS
from rematscope.render.theme import ODD_BRIGHTNESS, variables
from rematscope.render.units import bytes_text, count_text
from rematscope.reporting.contents import KINDS, Timeline, grouped, grouped_modules
from rematscope.reporting.tree import Node, tree_of

Scale = Callable[[float], float]
_LEFT, _WIDE, _HIGH, _TOP = 84, 1180, 300, 14
_NOTEBOOK, _NARROW = 760, 15  # in a notebook: the width of the pictures, and the font size where it is narrower
_ROW = 26  # height of a level of the icicle
_LETTER = 6.6  # width of a letter, about
_LISTED = 20
_NUMERIC = ' class="n"'
_PARTS_OF_NAMES = re.compile(r"(?<=[/_.(=])(?!\*|$)|(?<=[a-z\d])(?=[A-Z])")
_END_NUMBER = re.compile(r"\d+$")
_DOTS = re.compile(r"(?<=\.)(?=[a-z])|(?<=rewrite\()")


def render_page(report: Any) -> str:
    """Return the whole page."""
    style, script = (Path(__file__).with_name(f"page.{ending}").read_text(encoding="utf-8") for ending in ("css", "js"))
    light, dark = (f":root {{ {variables(dark)} }}" for dark in (False, True))
    style = f"{light}\n@media screen and (prefers-color-scheme: dark) {{ {dark} }}\n{style}{_kind_styles()}"
    tree = tree_of(report.peak)
    data = json.dumps({"timeline": _timeline_data(report.timeline), "nodes": _node_data(tree)}, separators=(",", ":"))
    data = data.replace("</", "<\\/")
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(report.function)}: memory report</title>\n<style>\n{style}</style>\n</head>",
            "<body>\n<main>",
            f"<h1>{escape(report.headline)}</h1>",
            f'<p class="soft">{escape(_summary_text(report))}</p>',
            *_fit_html(report),
            *_contents_html(report, tree),
            *_changes_html(report),
            *_assumptions_html(report),
            f'</main>\n<script type="application/json" id="data">{data}</script>',
            f"<script>\n{script}</script>\n</body>\n</html>\n",
        ]
    )


def pictures(report: Any) -> str:
    """Return the pictures without a script, for a notebook or a page on which none runs."""
    return (
        f"<style>{_kind_styles()} .rs-report {{ container-type: inline-size; }} "
        f".rs-report svg {{ display: block; width: min(100%, {_NOTEBOOK}px); height: auto; font: 12px sans-serif; }} "
        f"@container (max-width: 640px) {{ .rs-report svg {{ font-size: {_NARROW}px; }} }} "
        ".rs-report svg text { fill: currentColor; } .rs-report .node text { fill: #fff; } "
        ".rs-report .limit, .rs-report .edge, .rs-report .grid { stroke: currentColor; stroke-dasharray: 4 4; }</style>"
        f'<div class="rs-report">{timeline_svg(report.timeline, report.limit, _NOTEBOOK)}'
        f"{icicle_svg(tree_of(report.peak), _NOTEBOOK, _LETTER * _NARROW / 12)}</div>"
    )


# The four parts.


def _summary_text(report: Any) -> str:
    if report.fits:
        return "Nothing has to be changed."
    if report.best is None:
        return f"{report.nothing_fits.partition('. ')[0]}."
    peak, cost = bytes_text(report.best.peak_bytes), report.best.flops_text
    return f"A change that makes it fit was found: {peak}, with {cost}. See part 3."


def _fit_html(report: Any) -> list[str]:
    rows = report.kind_rows(lambda share: f"{100 * share:.1f} %")
    return [
        "<h2>1. Does it fit?</h2>",
        _in_scroll_box(_bar_svg(report), "Peak memory"),
        _legend_html(report.bytes_by_kind, math.isfinite(report.peak_bytes)),
        _table_html(rows, {1, 2, 3}, small=True),
    ]


def _contents_html(report: Any, tree: Node) -> list[str]:
    rows = [["Bytes", "Array", "Kind", "Module", "Operation", "Line"]]
    groups = grouped(report.peak)
    for group in groups[:_LISTED]:
        operation, source = group.buffers[0].operation, group.buffers[0].source
        rows.append([bytes_text(group.nbytes), group.array, group.kind, group.name(), operation, source])
    modules = [["Module", "At the peak", "Forward FLOPs", "Recomputed FLOPs", "Backward FLOPs"]]
    summed = grouped_modules(report.modules)
    for count, each in summed[:_LISTED]:
        flops = (each.forward_flops, each.recompute_flops, each.backward_flops)
        modules.append(
            [
                f"{count} × " * (count > 1) + "/".join(each.path),
                bytes_text(each.peak_bytes),
                *(count_text(n) if n else "–" for n in flops),
            ]
        )
    return [
        "<h2>2. What fills it?</h2>",
        "<h3>Live memory over time, by kind and module</h3>",
        '<p class="soft">Bytes in memory after each operation, in the order of execution. Each band is a module; bands '
        "of one kind have one color. Point at a moment, or use the arrow keys.</p>",
        _legend_html(dict.fromkeys(band.kind for band in report.timeline.bands), False),
        _in_scroll_box(timeline_svg(report.timeline, report.limit), "Live memory over time"),
        '<p class="note" id="moment" aria-live="polite">The peak is marked by a triangle.</p>',
        "<h3>The moment of the peak, by module, operation and line</h3>",
        '<p class="soft">Each part is as wide as its bytes, and has the color of the kind that most of them belong '
        "to.</p>",
        '<div class="tools no-script-hidden"><label>Search <input id="search" type="search" '
        'size="22" placeholder="attention, f32[, model.py"></label><span id="found" aria-live="polite"></span>'
        '<button type="button" id="whole">Show all</button><span class="soft">Click or Enter zooms, Escape zooms out, '
        "arrow keys move.</span></div>",
        _in_scroll_box(icicle_svg(tree), "Memory at the peak"),
        '<p class="note" id="part" aria-live="polite">Point at a part to see its arrays.</p>',
        f"<h3>The largest buffers at the peak</h3>{_table_html(rows, {0}, code={1, 3, 4, 5})}",
        *_rest_html(len(groups), "groups of buffers"),
        f"<h3>FLOPs and memory by module</h3>{_table_html(modules, {1, 2, 3, 4}, code={0})}",
        *_rest_html(len(summed), "modules"),
    ]


def _changes_html(report: Any) -> list[str]:
    found = ["<h2>3. What to change?</h2>"]
    if report.fits:
        return [*found, "<p>Nothing: it fits as written.</p>"]
    if report.best is not None:
        found.append(f"<p>{escape(report.proposal_text)}</p>")
        found.append(_snippet_html(report.best.snippet))
        found += [f"<p>{escape(report.best.by_hand)}</p>"] * bool(report.best.by_hand)
    else:
        found.append(f"<p>{escape(report.nothing_fits)}</p>")
    changes = [fix.changes for fix in report.shown_fixes]
    code = ["What to write", *(f"rematscope.rewrite({report.function}, {each})" for each in changes)]
    rows = [[*row, text] for row, text in zip(report.fix_rows(), code, strict=True)]
    best = changes.index(report.best.changes) if report.best is not None and report.best.changes in changes else None
    last = len(rows[0]) - 1
    found += [_table_html(rows, {1, *range(3, last)}, code={last}, best=best)] if changes else []
    return [*found, *(f"<p>{escape(sentence)}</p>" for sentence in report.advice)]


def _assumptions_html(report: Any) -> list[str]:
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in report.assumptions)
    return ["<h2>4. What was assumed?</h2>", f"<ul>{items}</ul>"]


# Pieces of HTML.


def _rest_html(count: int, noun: str) -> list[str]:
    """Return a sentence that says how many rows a table lacks, if any."""
    return [f'<p class="soft">Not shown: {count - _LISTED} smaller {noun}.</p>'] * (count > _LISTED)


def _table_html(
    rows: Sequence[Sequence[str]],
    numeric: set[int],
    code: Iterable[int] = (),
    best: int | None = None,
    small: bool = False,
) -> str:
    coded = set(code)

    def cell(i: int, text: str) -> str:
        inner = f"<code>{_with_breaks(text, rows[0][i])}</code>" if i in coded and text else escape(text)
        return f"<td{_NUMERIC if i in numeric else ''}>{inner}</td>"

    head = "".join(
        f'<th scope="col"{_NUMERIC if i in numeric else ""}>{escape(title)}</th>' if title else "<td></td>"
        for i, title in enumerate(rows[0])
    )
    lines = [
        f"<tr{' class=best' if j == best else ''}>{''.join(cell(i, text) for i, text in enumerate(row))}</tr>"
        for j, row in enumerate(rows[1:])
    ]
    kind = ' class="small"' if small else ""
    body = f"<table{kind}><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return _in_scroll_box(body, "table")


def _in_scroll_box(content: str, label: str) -> str:
    """Return content that scrolls sideways in a narrow window, also with the keyboard."""
    return f'<div class="scroll" tabindex="0" role="group" aria-label="{label}">{content}</div>'


def _with_breaks(text: str, title: str) -> str:
    """Return a cell's text, in which names can be broken between parts, but source lines and numbers cannot.

    Code to paste can be broken at spaces and after dots.
    """
    if title == "What to write":
        parts = _DOTS.split(text)
    else:
        parts = [text] if title == "Line" else _PARTS_OF_NAMES.split(text)
    return "<wbr>".join(map(escape, parts))


def _snippet_html(code: str) -> str:
    return (
        f'<div class="snippet"><pre tabindex="0" role="group" aria-label="code to paste">{escape(code)}</pre>'
        '<button type="button" data-copy hidden>Copy</button></div>'
    )


def _legend_html(kinds: Iterable[str], is_compiled: bool) -> str:
    items = "".join(
        f'<li><svg viewBox="0 0 12 12" aria-hidden="true">'
        f'<rect class="{_css_class(kind)}" width="12" height="12" rx="2"/></svg>{kind}</li>'
        for kind in kinds
    )
    if is_compiled:
        items += (
            '<li><svg viewBox="0 0 12 12" aria-hidden="true"><rect class="compiled" x="1" y="1" width="10" '
            'height="10"/></svg>compiled peak</li>'
        )
    return f'<ul class="key">{items}</ul>'


def _css_class(kind: str) -> str:
    return f"k-{kind.replace(' ', '-')}" if kind in KINDS else "k-"


def _kind_styles() -> str:
    """Return the fills of the kinds as CSS; neighbors of one kind differ in brightness."""
    fills = "".join(f".{_css_class(kind)} {{ fill: {color}; }}\n" for kind, color in KIND_COLORS.items())
    return f".k- {{ fill: {KIND_COLORS['parameters']}; }}\n{fills}.odd {{ filter: brightness({ODD_BRIGHTNESS}); }}\n"


def _bar_svg(report: Any) -> str:
    """The peak as one bar of kinds, with the capacity as a line across."""
    most = (
        max(report.predicted_bytes, report.limit, report.peak_bytes if math.isfinite(report.peak_bytes) else 0) * 1.04
    )
    x, parts = 0.0, []
    for kind, nbytes in report.bytes_by_kind.items():
        width = nbytes / most * _WIDE
        title = f"<title>{kind}: {bytes_text(nbytes)}</title>"
        parts.append(
            f'<rect class="part {_css_class(kind)}" x="{x:.1f}" y="22" width="{width:.1f}" height="34">{title}</rect>'
        )
        x += width
    if math.isfinite(report.peak_bytes):
        width, title = (
            report.peak_bytes / most * _WIDE,
            f"<title>compiled peak: {bytes_text(report.peak_bytes)}</title>",
        )
        parts.append(f'<rect class="compiled" x="1" y="20" width="{width:.1f}" height="38">{title}</rect>')
    at = report.limit / most * _WIDE
    side = ' text-anchor="end"' if at > _WIDE / 2 else ""
    shift = -6 if side else 6
    label = f"capacity {bytes_text(report.limit)}"
    about = f"{report.function}: {bytes_text(report.predicted_bytes)} at the peak, {label}"
    return (
        f'<svg viewBox="0 0 {_WIDE} 64" role="img" aria-label="{escape(about)}">{"".join(parts)}'
        f'<line class="limit" x1="{at:.1f}" x2="{at:.1f}" y1="4" y2="62"/>'
        f'<text class="limit-text" x="{at + shift:.1f}" y="15"{side}>{label}</text></svg>'
    )


def timeline_svg(timeline: Timeline, limit: int, wide: int = _WIDE) -> str:
    """Return the timeline as SVG, each band a step function."""
    totals = timeline.totals
    peak, count = max(totals, default=0), max(len(totals), 1)
    most = max(peak, min(limit, 1.3 * peak)) * 1.08 or 1
    width = wide - _LEFT - 6

    def x(i: float) -> float:
        return _LEFT + i / count * width

    def y(nbytes: float) -> float:
        return _TOP + _HIGH * (1 - nbytes / most)

    parts, base, previous, odd = [], [0] * count, "", False
    for band in timeline.bands:
        top = [low + high for low, high in zip(base, band.nbytes, strict=True)]
        odd = not odd if band.kind == previous else False
        previous = band.kind
        name = f"{band.module} ({band.kind})" if band.module else band.kind
        title = f"<title>{escape(name)}: up to {bytes_text(max(band.nbytes))}</title>"
        shade = " odd" if odd else ""
        parts.append(
            f'<path class="band {_css_class(band.kind)}{shade}" d="{_area_path(base, top, x, y)}">{title}</path>'
        )
        base = top
    grid = []
    for level in _axis_levels(most):
        grid.append(f'<line class="grid" x1="{_LEFT}" x2="{wide - 6}" y1="{y(level):.1f}" y2="{y(level):.1f}"/>')
        grid.append(
            f'<text class="axis" x="{_LEFT - 6}" y="{y(level) + 4:.1f}" text-anchor="end">{bytes_text(level)}</text>'
        )
    marks = []
    if limit <= most:
        across = f'x1="{_LEFT}" x2="{wide - 6}" y1="{y(limit):.1f}" y2="{y(limit):.1f}"'
        marks.append(f'<line class="limit-under" {across}/><line class="limit" {across}/>')
        marks.append(
            f'<text class="limit-text" x="{wide - 10}" y="{y(limit) - 5:.1f}" text-anchor="end">capacity</text>'
        )
    edge = x(next((i for i, each in enumerate(timeline.samples) if each >= timeline.boundary), len(timeline.samples)))
    marks.append(f'<line class="edge" x1="{edge:.1f}" x2="{edge:.1f}" y1="{_TOP}" y2="{_TOP + _HIGH}"/>')
    at = totals.index(peak) if totals else 0
    marks.append(f'<path d="M{x(at + 0.5):.1f},{y(peak) - 1:.1f} l-5,-9 h10 z" fill="currentColor"/>')
    bottom = _TOP + _HIGH + 18
    words = f'<text class="axis" x="{_LEFT}" y="{bottom}">forward pass</text>' if edge > _LEFT + 110 else ""
    place = f'x="{edge + 4:.1f}"' if edge < wide - 220 else f'x="{wide - 6}" text-anchor="end"'
    words += f'<text class="axis" {place} y="{bottom}">backward pass and update →</text>'
    about = f"Memory over time: up to {bytes_text(peak)}, at operation {timeline.peak_step:,} of {timeline.steps:,}"
    return (
        f'<svg id="timeline" viewBox="0 0 {wide} {bottom + 8}" role="img" tabindex="0" aria-label="{escape(about)}">'
        f"{''.join(grid)}{''.join(parts)}{''.join(marks)}{words}"
        f'<line class="cursor" y1="{_TOP}" y2="{_TOP + _HIGH}" x1="0" x2="0"/></svg>'
    )


def _axis_levels(most: float) -> list[int]:
    """Return two to five multiples of a power of two bytes below a number of bytes."""
    step = 2 ** max(math.ceil(math.log2(most / 6)), 0)
    return list(range(step, math.ceil(most), step))


def _area_path(base: Sequence[int], top: Sequence[int], x: Scale, y: Scale) -> str:
    """The path between two step functions, one point where several neighbors are equal."""

    def line(values: Sequence[int]) -> list[tuple[float, float]]:
        points: list[tuple[float, float]] = []
        for i, value in enumerate(values):
            if not i or value != values[i - 1]:
                if i:
                    points.append((x(i), y(values[i - 1])))
                points.append((x(i), y(value)))
        return [*points, (x(len(values)), y(values[-1]))]

    points = line(top) + line(base)[::-1]
    return "M" + "L".join(f"{a:.1f},{b:.1f}" for a, b in points) + "Z"


def _timeline_data(timeline: Timeline) -> dict[str, object]:
    return {
        "left": _LEFT,
        "width": _WIDE - _LEFT - 6,
        "samples": timeline.samples,
        "steps": timeline.steps,
        "totals": timeline.totals,
        "bands": [[band.kind, band.module, band.nbytes] for band in timeline.bands],
    }


def icicle_svg(tree: Node, wide: int = _WIDE, letter: float = _LETTER) -> str:
    """Return the memory at the peak as an icicle: each level is a row, and each part is as wide as its bytes."""
    nodes = list(tree.walk())
    rows, parts, odd = 1, [], dict[int, bool]()
    for node, start, depth in nodes:
        x, width = start / max(tree.nbytes, 1) * wide, node.nbytes / max(tree.nbytes, 1) * wide
        odd[depth] = not odd.get(depth, True)
        rows = max(rows, depth + 1) if width > 0.4 else rows
        label = _fitting_label(node, int((width - 8) / letter))
        about = escape(f"{node.name}, {bytes_text(node.nbytes)}. {node.about}")
        hidden = ' style="display:none"' if width <= 0.4 else ""
        shade = " odd" if odd[depth] else ""
        parts.append(
            f'<g class="node" role="treeitem" tabindex="-1" aria-level="{depth + 1}" aria-label="{about}"{hidden}>'
            f'<rect class="{_css_class(node.kind)}{shade}" x="{x:.2f}" y="{depth * _ROW}" width="{width:.2f}" '
            f'height="{_ROW}"/>'
            f'<text x="{x + 4:.2f}" y="{depth * _ROW + 17}">{escape(label)}</text></g>'
        )
    return (
        f'<svg id="icicle" viewBox="0 0 {wide} {rows * _ROW}" role="tree" aria-label="Memory at the peak by module">'
        f"{''.join(parts)}</svg>"
    )


def _fitting_label(node: Node, room: int) -> str:
    """Return a label of at most `room` characters; the number at the end of a name stays, as in `…11`."""
    label = f"{node.name} {bytes_text(node.nbytes)}"
    if len(label) > room:
        label = node.name
    if len(label) > room:
        number = _END_NUMBER.search(label)
        tail = number[0] if number and len(number[0]) < room else ""
        label = f"{label[: room - 1 - len(tail)]}…{tail}"
    return label if room >= 3 else ""


def _node_data(tree: Node) -> list[list[object]]:
    """The nodes in the order of the picture: parent, start, bytes, depth, name, about, count."""
    found: list[list[object]] = []
    parents: list[int] = []
    for node, start, depth in tree.walk():
        del parents[depth:]
        found.append([parents[-1] if parents else -1, start, node.nbytes, depth, node.name, node.about, node.count])
        parents.append(len(found) - 1)
    return found
