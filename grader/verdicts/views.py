"""Show verdicts and notes, in a terminal and as HTML."""

import re
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from grader.verdicts.verdict import HEADLINE, Effect, Finding, Outcome, Verdict
from rematscope.render import COLOURS, View, bar_text


class Note(View):
    """A few sentences under a headline, with code in backquotes."""

    def __init__(self, headline: str, *sentences: str):
        self.headline, self.sentences = headline, sentences

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.headline.replace("`", ""), style="bold")
        for sentence in self.sentences:
            yield Padding(Text(sentence.replace("`", "")), (0, 0, 0, 2))

    def html(self) -> Markup:
        paragraphs = (Markup("<p>{}</p>").format(text_html(sentence)) for sentence in self.sentences)
        return box(Markup().join(paragraphs), headline=self.headline)


class WithNotes(View):
    """A view, with sentences below it that the learner must read."""

    def __init__(self, view: View, notices: Iterable[str]):
        self._parts = [view, *(Note("Please note", notice) for notice in notices)]

    def parts(self) -> Iterable[View]:
        return self._parts


class Preformatted(View):
    """The text of a view that was sent as text."""

    def __init__(self, text: str):
        self.text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.text)

    def html(self) -> Markup:
        return Markup('<pre style="overflow-x: auto">{}</pre>').format(self.text)


def as_view(view: View | str) -> View:
    """Return a view from a view or its text."""
    return Preformatted(view) if isinstance(view, str) else view


def box(inner: Markup, colour: str = "--jp-info-color1", headline: str | None = None) -> Markup:
    """Return HTML below a headline, with a line on the left in the color of one of JupyterLab's variables."""
    # The variables follow the theme. If they or all styles are missing, plain elements remain.
    title = Markup("<p><strong>{}</strong></p>").format(text_html(headline)) if headline else ""
    return Markup(
        '<div style="color: var(--jp-ui-font-color1, inherit); border-left: 4px solid var({}, currentColor);'
        ' padding: 0.25em 1em; line-height: var(--jp-content-line-height, 1.5)">{}{}</div>'
    ).format(colour, title, inner)


def python_html(text: str) -> Markup:
    """Return a program as HTML, in the colors of code in JupyterLab's theme."""
    # Imported here, because the import is slow, and only a worked answer needs it.
    from pygments.lexers import PythonLexer

    pieces = []
    for token, piece in PythonLexer().get_tokens(text):
        colour = next((variable for kind, variable in _CODE_COLOURS.items() if kind in str(token)), None)
        span = Markup('<span style="color: var(--jp-mirror-editor-{}-color)">{}</span>')
        pieces.append(span.format(colour, piece) if colour else escape(piece))
    # JupyterLab would break lines in the middle of words.
    style = "white-space: pre-wrap; word-break: normal; overflow-wrap: anywhere"
    return Markup('<pre style="{}">{}</pre>').format(style, Markup().join(pieces))


_CODE_COLOURS = {
    "Comment": "comment", "Doc": "string", "String": "string", "Number": "number", "Keyword": "keyword",
    "Function": "def", "Operator.Word": "keyword",
}  # fmt: skip


def text_html(text: str) -> Markup:
    """Return text as HTML, with `<code>` for text in backquotes."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text)))


# Each with its own background, because a terminal's background may have any color.
_BADGE = {Outcome.PASSED: "#ffffff on #1a7f37", Outcome.NOT_PASSED: "#ffffff on #8a5a00"}
_THEME_COLOUR = {Outcome.PASSED: "--jp-success-color1", Outcome.NOT_PASSED: "--jp-warn-color1"}
_BAR = 12  # the number of characters of the longest bar
# The most sentences about a passing answer that are listed. Of more, a page folds all but the first one.
_MOST_SHOWN = 4
_WIDE = 200  # more terminal columns than a table of costs needs


class VerdictView(View):
    """A verdict with its findings, a comparison of costs, and the programs that explain the findings."""

    def __init__(self, verdict: Verdict):
        self.verdict = verdict

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        verdict = self.verdict
        badge = _BADGE.get(verdict.outcome, "#ffffff on #005a8f")
        yield Text.assemble((HEADLINE[verdict.outcome], f"bold {badge}"), f": {verdict.exercise}")
        shown = verdict.shown
        if len(shown) > _MOST_SHOWN:
            shown = shown[0], "check() on the exercise's page also shows what your answer does in each case."
        for sentence in shown:
            yield Padding(Text(sentence), (0, 0, 0, 2))
        for number, finding in enumerate(verdict.findings, 1):
            label = "Advice: " if finding.advice else f"{number}. "
            yield Padding(Text.assemble((label, "bold"), finding.text), (0, 0, 0, 2))
            for name, words in finding.details():
                yield Padding(Text.assemble((f"{name}: ", "italic"), words), (0, 0, 0, 5))
        if verdict.effects:
            yield Text()
            table = _effect_table(verdict.effects, verdict.scene, bars=True)
            fits = Measurement.get(console, options.update(max_width=_WIDE), table).maximum <= options.max_width
            yield table if fits else _effect_table(verdict.effects, verdict.scene, bars=False)
        yield ProgramsView(verdict)

    def html(self) -> Markup:
        verdict = self.verdict
        headline = Markup("<p><strong>{}</strong>: <code>{}</code></p>")
        parts = [headline.format(HEADLINE[verdict.outcome], verdict.exercise)]
        if verdict.shown:
            parts.append(_shown_html(verdict.shown))
        if verdict.findings:
            parts.append(Markup("<ol>{}</ol>").format(Markup().join(map(_finding_html, verdict.findings))))
        if verdict.effects:
            parts.append(_effects_html(verdict.effects, verdict.scene))
        return box(Markup().join(parts), _THEME_COLOUR.get(verdict.outcome, "--jp-info-color1"))


class ProgramsView(View):
    """The programs that explain the findings of a verdict, for a terminal.

    Programs are long, so those of a case are shown without marks only if no finding shows them with marks.
    """

    def __init__(self, verdict: Verdict):
        with_programs = [finding for finding in verdict.findings if finding.programs is not None]
        marked = {finding.cases[0] for finding in with_programs if finding.marked}
        self.findings = [each for each in with_programs if each.marked or each.cases[0] not in marked]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for finding in self.findings:
            yield Text.assemble("\n", (f"{programs_title(finding)}:", "bold"))
            yield as_view(finding.programs or "")


def _shown_html(sentences: Sequence[str]) -> Markup:
    """Return a list of what a passing answer does. Most of a long list, with figures of single cases, is folded."""
    listed = [Markup("<li>{}</li>").format(text) for text in sentences]
    if len(sentences) <= _MOST_SHOWN:
        return Markup("<ul>{}</ul>").format(Markup().join(listed))
    return Markup(
        "<ul>{}</ul><details><summary>What your answer does in each case</summary><ul>{}</ul></details>"
    ).format(listed[0], Markup().join(listed[1:]))


def programs_title(finding: Finding) -> str:
    """Return the title of a finding's programs."""
    marks = ", with the residuals of this finding marked" if finding.marked else ""
    return f"Forward and backward programs of your answer ({finding.cases[0]}){marks}"


def _finding_html(finding: Finding) -> Markup:
    row = Markup(
        '<tr><th scope="row" style="text-align: left; vertical-align: top; white-space: nowrap">{}</th>'
        '<td style="text-align: left">{}</td></tr>'
    )
    rows = Markup().join(row.format(label, words) for label, words in finding.details())
    advice = Markup("<strong>Advice:</strong> ") if finding.advice else ""
    table = Markup("<table>{}</table>").format(rows) if rows else ""
    programs: Markup | str = ""
    if finding.programs is not None:
        # <details> opens by mouse and by keyboard, even without a kernel. Long programs scroll in a box of their own:
        # opening them does not move the rest of the page out of sight.
        details = Markup(
            '<details><summary>{0}</summary><div tabindex="0" role="group" aria-label="{0}" '
            'style="max-height: 70vh; overflow: auto">{1}</div></details>'
        )
        programs = details.format(programs_title(finding), Markup(as_view(finding.programs).html()))
    return Markup("<li><p>{}{}</p>{}{}</li>").format(advice, finding.text, table, programs)


def _shares(effects: Sequence[Effect]) -> list[tuple[Effect, float, float]]:
    """Return each effect with its bytes and its FLOPs as shares of the largest bytes and FLOPs."""
    most_saved = max(effect.saved_bytes for effect in effects) or 1
    most_recomputed = max(effect.recomputed_flops for effect in effects) or 1
    return [(e, e.saved_bytes / most_saved, e.recomputed_flops / most_recomputed) for e in effects]


def _effect_table(effects: Sequence[Effect], scene: str, bars: bool) -> Table:
    table = Table(box=None, title=f"Cost ({scene})", title_justify="left", title_style="bold", pad_edge=False)
    table.add_column("", overflow="fold")
    on_host = any(effect.host_bytes for effect in effects)
    if on_host:
        table.add_column("In host memory", justify="right")
    for title, style in (("Saved", COLOURS["S"]), ("Recomputed", COLOURS["R"])):
        table.add_column(title, justify="right")
        if bars:
            table.add_column("", style=style, min_width=_BAR)
    for effect, saved, recomputed in _shares(effects):
        bar = [bar_text(share, _BAR) for share in (saved, recomputed)]
        cells = [f"{effect.saved_bytes:,} B", bar[0], f"{effect.recomputed_flops:,} FLOPs", bar[1]]
        host = [f"{effect.host_bytes:,} B"] if on_host else []
        table.add_row(effect.label, *host, *(cells if bars else cells[::2]))
    return table


def _effects_html(effects: Sequence[Effect], scene: str) -> Markup:
    def bar(share: float, colour: str) -> Markup:
        # The bar only illustrates the number next to it. Untrusted pages lose the style, and therefore the bar.
        style = f"display: inline-block; height: 0.7em; width: {share * _BAR * 0.75:.2f}em; background: {colour}"
        cell = f"text-align: left; min-width: {_BAR * 0.75}em"
        return Markup('<td aria-hidden="true" style="{}"><span style="{}"></span></td>').format(cell, style)

    right = Markup('style="text-align: right; white-space: nowrap"')
    row = Markup(
        '<tr><th scope="row" style="text-align: left">{}</th>{}<td {}>{:,} B</td>{}<td {}>{:,} FLOPs</td>{}</tr>'
    )
    on_host = any(effect.host_bytes for effect in effects)
    host = Markup("<td {}>{:,} B</td>")
    rows = Markup().join(
        row.format(
            effect.label, host.format(right, effect.host_bytes) if on_host else "",
            right, effect.saved_bytes, bar(saved, f"var(--jp-info-color1, {COLOURS['S']})"),
            right, effect.recomputed_flops, bar(recomputed, f"var(--jp-warn-color1, {COLOURS['R']})"),
        )
        for effect, saved, recomputed in _shares(effects)
    )  # fmt: skip
    title = Markup('<th scope="col" {}>{}</th><td></td>')
    titles = Markup().join(title.format(right, text) for text in ("Saved", "Recomputed"))
    if on_host:
        titles = Markup('<th scope="col" {}>In host memory</th>').format(right) + titles
    # In a narrow panel, the table scrolls. Otherwise, it would widen all text, which would be cut off.
    page = (
        '<p><strong>Cost ({})</strong></p><div style="overflow-x: auto" tabindex="0" role="group" aria-label="Cost">'
        "<table><thead><tr><td></td>{}</tr></thead><tbody>{}</tbody></table></div>"
    )
    return Markup(page).format(scene, titles, rows)
