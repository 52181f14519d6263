"""What a check says: a verdict and its findings, shown in a notebook, in a terminal and as JSON."""

import dataclasses
import html
from dataclasses import dataclass
from typing import Any

from grader.verdicts.display import Displayed, box, view_html, view_rich
from grader.verdicts.kinds import FindingKind, Outcome

EXIT_STATUS = {Outcome.PASSED: 0, Outcome.NOT_PASSED: 1, Outcome.NOT_ATTEMPTED: 1, Outcome.NOT_JUDGED: 2}
_HEADLINE = {
    Outcome.PASSED: "Passed",
    Outcome.NOT_PASSED: "Not passed yet",
    Outcome.NOT_ATTEMPTED: "Not attempted",
    Outcome.NOT_JUDGED: "Not judged",
}


@dataclass(frozen=True)
class Finding:
    """One thing that a check found.

    Attributes:
      kind: what sort of finding.
      text: one or two sentences for the learner.
      expected: what was asked for, in words, or None.
      got: what the answer does instead, in words, or None.
      nbytes: bytes that the finding is about, or None.
      flops: FLOPs that the finding is about, or None.
      source: the learner's line, such as `"In [3], line 7"`, or None. It comes from the answer's own trace: it
        helps a reader and decides nothing.
      next: the next thing to look at, a question, or None.
      cases: names of the cases that show it; the figures are those of the first.
      advice: True if the finding stands beside a pass and does not prevent it.
      marked: positions of the residuals that it is about, among those of the first case.
      programs: the answer's two programs in that case, a `rematscope` view with those residuals marked, or its text;
        None where they would explain nothing.
    """

    kind: FindingKind
    text: str
    expected: str | None = None
    got: str | None = None
    nbytes: int | None = None
    flops: int | None = None
    source: str | None = None
    next: str | None = None
    cases: tuple[str, ...] = ()
    advice: bool = False
    marked: tuple[int, ...] = ()
    programs: Any = None

    def details(self) -> list[tuple[str, str]]:
        """The finding beyond its text as (label, words), in the order in which they are shown."""
        rows = [
            ("asked for", self.expected),
            ("yours", self.got),
            ("in your code", self.source),
            ("seen in", "; ".join(self.cases) or None),
            ("next", self.next),
        ]
        return [(label, words) for label, words in rows if words is not None]


@dataclass(frozen=True)
class Effect:
    """What one way of differentiating an exercise's function costs, for the shapes of its page.

    Attributes:
      label: whose way it is, such as `"your answer"`.
      saved_bytes: bytes of the computed values that the forward pass keeps; arguments and constants are in memory
        anyway.
      recomputed_flops: FLOPs that the backward pass spends on what the forward pass has computed before.
    """

    label: str
    saved_bytes: int
    recomputed_flops: int


@dataclass(frozen=True, repr=False)
class Verdict(Displayed):
    """The outcome of checking one answer.

    Attributes:
      exercise: the exercise's name.
      outcome: how it ended.
      findings: what is wrong, most telling first, then advice.
      shown: what the answer was shown to do, one sentence each; empty unless it passed.
      evidence: SHA-256 of what was judged, or None if there was nothing to judge.
      effects: the answer's costs beside others', or empty where they cannot be had.
      scene: what the effects are those of, in words that follow on "what that costs".
      residuals: what the answer saves there, a `rematscope.ResidualTable` or its text, or None.
    """

    exercise: str
    outcome: Outcome
    findings: tuple[Finding, ...] = ()
    shown: tuple[str, ...] = ()
    evidence: str | None = None
    effects: tuple[Effect, ...] = ()
    scene: str = ""
    residuals: Any = None

    @property
    def passed(self) -> bool:
        return self.outcome == Outcome.PASSED

    def to_dict(self) -> dict:
        """The verdict as JSON's types: views become their texts, for 80 columns."""
        findings = [dataclasses.replace(finding, programs=_text(finding.programs)) for finding in self.findings]
        return dataclasses.asdict(dataclasses.replace(self, findings=findings, residuals=_text(self.residuals)))

    @classmethod
    def from_dict(cls, fields: dict) -> "Verdict":
        """The verdict that `to_dict` described. Raises TypeError, KeyError or ValueError if it is none."""
        parts = {
            "findings": tuple(
                Finding(
                    **finding
                    | {
                        "kind": FindingKind(finding["kind"]),
                        "cases": tuple(finding["cases"]),
                        "marked": tuple(finding["marked"]),
                    }
                )
                for finding in fields["findings"]
            ),
            "outcome": Outcome(fields["outcome"]),
            "shown": tuple(fields["shown"]),
            "effects": tuple(Effect(**effect) for effect in fields["effects"]),
        }
        return cls(**fields | parts)

    def __rich_console__(self, console, options):
        from rich.padding import Padding
        from rich.text import Text

        colour = {Outcome.PASSED: "green", Outcome.NOT_PASSED: "yellow"}.get(self.outcome, "cyan")
        yield Text.assemble((_HEADLINE[self.outcome], f"bold {colour}"), f": {self.exercise}")
        for sentence in self.shown:
            yield Padding(Text(sentence), (0, 0, 0, 2))
        for number, finding in enumerate(self.findings, 1):
            label = "Advice: " if finding.advice else f"{number}. "
            yield Padding(Text.assemble((label, "bold"), finding.text), (0, 0, 0, 2))
            for name, words in finding.details():
                yield Padding(Text.assemble((f"{name}: ", "dim"), words), (0, 0, 0, 5))
        if self.effects:
            yield Text()
            yield _effect_table(self.effects, self.scene)
        for finding in self.findings:
            if finding.programs is not None:
                yield Text.assemble("\n", (programs_title(finding), "bold"))
                yield view_rich(finding.programs)

    def html(self) -> str:
        colour = {Outcome.PASSED: "--jp-success-color1", Outcome.NOT_PASSED: "--jp-warn-color1"}.get(
            self.outcome, "--jp-info-color1"
        )
        findings = "".join(map(_finding_html, self.findings))
        return box(
            f"<p><strong>{_HEADLINE[self.outcome]}</strong>: <code>{html.escape(self.exercise)}</code></p>"
            + (f"<ul>{''.join(f'<li>{html.escape(s)}</li>' for s in self.shown)}</ul>" if self.shown else "")
            + (f"<ol>{findings}</ol>" if findings else "")
            + (_effects_html(self.effects, self.scene) if self.effects else ""),
            colour,
        )


def _text(view) -> str | None:
    if view is None or isinstance(view, str):
        return view
    from rematscope.render.view import plain_text  # imports JAX, which whoever has the text can do without

    return plain_text(view, 80)


def programs_title(finding: Finding) -> str:
    """What a finding's picture is called."""
    marks = ", the values of the finding marked" if finding.marked else ""
    return f"Both programs of your answer ({finding.cases[0]}){marks}:"


def _finding_html(finding: Finding) -> str:
    rows = "".join(
        f'<tr><th scope="row" style="text-align: left; vertical-align: top; white-space: nowrap">{label}</th>'
        f'<td style="text-align: left">{html.escape(words)}</td></tr>'
        for label, words in finding.details()
    )
    advice = "<strong>Advice:</strong> " if finding.advice else ""
    programs = ""
    if finding.programs is not None:
        # <details> opens without a kernel too, by mouse and by keyboard.
        title = html.escape(programs_title(finding).rstrip(":"))
        programs = f"<details><summary>{title}</summary>{view_html(finding.programs)}</details>"
    return f"<li><p>{advice}{html.escape(finding.text)}</p>{f'<table>{rows}</table>' if rows else ''}{programs}</li>"


_BAR = 12  # characters


def _effect_rows(effects) -> list[tuple[Effect, int, int]]:
    """Each effect with the lengths of its two bars, in characters: the largest of each kind is `_BAR` long."""
    most = [max(max(sizes), 1) for sizes in zip(*((e.saved_bytes, e.recomputed_flops) for e in effects), strict=True)]
    return [
        (e, *(_length(n, m) for n, m in zip((e.saved_bytes, e.recomputed_flops), most, strict=True))) for e in effects
    ]


def _length(size: int, most: int) -> int:
    return max(round(_BAR * size / most), 1) if size else 0


def _effect_table(effects, scene: str):
    from rich.table import Table

    table = Table(box=None, title=f"What that costs, {scene}", title_justify="left", title_style="bold", pad_edge=False)
    table.add_column("")
    for title, style in (("saved", "blue"), ("computed again", "dark_orange")):
        table.add_column(title, justify="right")
        table.add_column("", style=style, min_width=_BAR)
    for effect, saved, again in _effect_rows(effects):
        bytes_, flops = f"{effect.saved_bytes:,} B", f"{effect.recomputed_flops:,} FLOPs"
        table.add_row(effect.label, bytes_, "█" * saved, flops, "█" * again)
    return table


def _effects_html(effects, scene: str) -> str:
    def bar(length, colour):
        # Only a picture of the number beside it. Untrusted pages lose the style, and with it the bar.
        style = f"display: inline-block; height: 0.7em; width: {length * 0.75}em; background: {colour}"
        cell = f"text-align: left; min-width: {_BAR * 0.75}em"
        return f'<td aria-hidden="true" style="{cell}"><span style="{style}"></span></td>'

    right = 'style="text-align: right; white-space: nowrap"'
    rows = "".join(
        f'<tr><th scope="row" style="text-align: left">{html.escape(effect.label)}</th>'
        f"<td {right}>{effect.saved_bytes:,} B</td>{bar(saved, 'var(--jp-info-color1, #0072b2)')}"
        f"<td {right}>{effect.recomputed_flops:,} FLOPs</td>{bar(again, 'var(--jp-warn-color1, #d55e00)')}</tr>"
        for effect, saved, again in _effect_rows(effects)
    )
    titles = "".join(f'<th scope="col" {right}>{title}</th><td></td>' for title in ("saved", "computed again"))
    head = f"<thead><tr><td></td>{titles}</tr></thead>"
    return f"<p><strong>What that costs, {html.escape(scene)}</strong></p><table>{head}<tbody>{rows}</tbody></table>"
