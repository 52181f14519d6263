"""What a check says: a verdict and its findings, shown in a notebook, in a terminal and as JSON."""

import dataclasses
import html
from dataclasses import dataclass

PASSED = "passed"
NOT_PASSED = "not passed"
NOT_ATTEMPTED = "not attempted"
NOT_JUDGED = "could not be judged"

EXIT_STATUS = {PASSED: 0, NOT_PASSED: 1, NOT_ATTEMPTED: 1, NOT_JUDGED: 2}
_HEADLINE = {PASSED: "Passed", NOT_PASSED: "Not passed yet", NOT_ATTEMPTED: "Not attempted", NOT_JUDGED: "Not judged"}


@dataclass(frozen=True)
class Finding:
    """One thing that a check found.

    Attributes:
      kind: what sort of finding, a short name that programs may rely on (`"also saved"`, `"wrong value"`, …).
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
    """

    kind: str
    text: str
    expected: str | None = None
    got: str | None = None
    nbytes: int | None = None
    flops: int | None = None
    source: str | None = None
    next: str | None = None
    cases: tuple[str, ...] = ()
    advice: bool = False

    def details(self) -> list[tuple[str, str]]:
        """The finding beyond its text as (label, words), in the order in which they are shown."""
        rows = [
            ("asked for", self.expected),
            ("yours", self.got),
            ("in your code", self.source),
            ("seen in", ", ".join(self.cases) or None),
            ("next", self.next),
        ]
        return [(label, words) for label, words in rows if words is not None]


@dataclass(frozen=True)
class Verdict:
    """The outcome of checking one answer.

    Attributes:
      exercise: the exercise's name.
      outcome: `"passed"`, `"not passed"`, `"not attempted"` or `"could not be judged"`.
      findings: what is wrong, most telling first, then advice.
      shown: what the answer was shown to do, one sentence each; empty unless it passed.
    """

    exercise: str
    outcome: str
    findings: tuple[Finding, ...] = ()
    shown: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return self.outcome == PASSED

    def to_dict(self) -> dict:
        """The verdict as JSON's types."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: dict) -> "Verdict":
        """The verdict that `to_dict` described. Raises TypeError, KeyError or ValueError if it is none."""
        if fields["outcome"] not in EXIT_STATUS:
            raise ValueError(f"unknown outcome {fields['outcome']!r}")
        findings = tuple(Finding(**finding | {"cases": tuple(finding["cases"])}) for finding in fields["findings"])
        return cls(**fields | {"findings": findings, "shown": tuple(fields["shown"])})

    def __rich_console__(self, console, options):
        from rich.padding import Padding
        from rich.text import Text

        colour = {PASSED: "green", NOT_PASSED: "yellow"}.get(self.outcome, "cyan")
        yield Text.assemble((_HEADLINE[self.outcome], f"bold {colour}"), f": {self.exercise}")
        for sentence in self.shown:
            yield Padding(Text(sentence), (0, 0, 0, 2))
        for number, finding in enumerate(self.findings, 1):
            label = "Advice: " if finding.advice else f"{number}. "
            yield Padding(Text.assemble((label, "bold"), finding.text), (0, 0, 0, 2))
            for name, words in finding.details():
                yield Padding(Text.assemble((f"{name}: ", "dim"), words), (0, 0, 0, 5))

    def __str__(self) -> str:
        import io

        from rich.console import Console

        # 100 columns whatever the terminal: the same verdict is the same text wherever it is stored.
        console = Console(file=io.StringIO(), width=100, color_system=None, force_jupyter=False)
        console.print(self)
        lines = console.file.getvalue().splitlines()
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self._html()}

    def _html(self) -> str:
        # JupyterLab's variables follow its theme; where they or all styles are missing, plain elements remain.
        colour = {PASSED: "--jp-success-color1", NOT_PASSED: "--jp-warn-color1"}.get(self.outcome, "--jp-info-color1")
        findings = "".join(_finding_html(finding) for finding in self.findings)
        return (
            f'<div style="color: var(--jp-ui-font-color1, inherit); border-left: 4px solid var({colour}, currentColor);'
            f' padding: 0.25em 1em; max-width: 60em"><p><strong>{_HEADLINE[self.outcome]}</strong>: '
            f"<code>{html.escape(self.exercise)}</code></p>"
            + (f"<ul>{''.join(f'<li>{html.escape(s)}</li>' for s in self.shown)}</ul>" if self.shown else "")
            + (f"<ol>{findings}</ol>" if findings else "")
            + "</div>"
        )


def _finding_html(finding: Finding) -> str:
    rows = "".join(
        f'<tr><th scope="row" style="text-align: left; vertical-align: top">{label}</th>'
        f'<td style="text-align: left">{html.escape(words)}</td></tr>'
        for label, words in finding.details()
    )
    advice = "<strong>Advice:</strong> " if finding.advice else ""
    return f"<li><p>{advice}{html.escape(finding.text)}</p>{f'<table>{rows}</table>' if rows else ''}</li>"
