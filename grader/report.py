"""What comes out of grading a class: grades.csv, grades.json, a page for each learner, Gradescope's results."""

import csv
import dataclasses
import functools
import hashlib
import html
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader import exercise as exercises
from grader.files import write_whole
from grader.progress import versions
from grader.verdict import NOT_ATTEMPTED, NOT_JUDGED, NOT_PASSED, PASSED, Finding, Verdict

CSV, JSON, PAGES, GRADESCOPE = "grades.csv", "grades.json", "feedback", "gradescope"


@dataclass(frozen=True)
class Picture:
    """An answer's two programs side by side, as a `rematscope` view lays them out: text and nothing else.

    Attributes:
      title: which programs these are.
      columns: forward and backward, each a list of lines, each a list of (text, style) pieces.
      footer: lines below both.
    """

    title: str
    columns: Sequence
    footer: Sequence

    @classmethod
    def of(cls, title: str, columns: Any, footer: Any) -> "Picture":
        """Takes over what an answer's process says. Raises TypeError or ValueError if that is no picture."""
        if not (isinstance(columns, list) and len(columns) == 2):
            raise ValueError("not two programs")
        budget = itertools.count()
        picture = cls(title, [_lines(column, budget) for column in columns], _lines(footer, budget))
        lines = itertools.chain(*picture.columns, picture.footer)
        if sum(len(text) for line in lines for text, _ in line) > _MAX_CHARACTERS:
            raise ValueError("too much to look at")
        return picture

    def html(self) -> str:
        from rematscope.display import html_page  # imports JAX

        return html_page(self.columns, self.footer)


# What `rematscope` gives lines to: its letters and types, and nothing else that could be a name of the page's.
_STYLES = {"", "bold", "rs-type", "rs-source", "rs-marked", *(f"rs-{x}{m}" for x in "SRLB" for m in ("", " rs-marked"))}
_MAX_PIECES = 20_000
_MAX_CHARACTERS = 500_000


def _lines(lines: Any, budget: Iterator[int]) -> list[list[tuple[str, str]]]:
    if not isinstance(lines, list):
        raise TypeError("no lines")
    return [[_piece(*piece) for piece in line if next(budget) < _MAX_PIECES] for line in lines[:_MAX_PIECES]]


def _piece(text: str, style: str) -> tuple[str, str]:
    if not isinstance(text, str) or style not in _STYLES:
        raise ValueError("not a piece of a view")
    return "".join(c if c.isprintable() else " " for c in text[:1000]), style


@dataclass(frozen=True)
class Grade:
    """A verdict on a submission.

    Attributes:
      learner: who handed it in.
      name: the file's name; "" if there is no file.
      verdict: the verdict.
      printed: what the answer printed, shortened in the middle.
      seconds: how long grading took.
      picture: the answer's two programs, or None. It comes from the answer's own process: it decides nothing.
      digest: the submission's, "" if there is none, or it has not been written down.
    """

    learner: str
    name: str
    verdict: Verdict
    printed: str = ""
    seconds: float = 0.0
    picture: Picture | None = None
    digest: str = ""

    @property
    def score(self) -> int:
        return int(self.verdict.passed)

    @property
    def reason(self) -> str:
        """The verdict in a line."""
        findings = [finding.text for finding in self.verdict.findings if not finding.advice]
        return findings[0] if findings else " ".join(self.verdict.shown)

    def to_dict(self) -> dict[str, Any]:
        """The grade as JSON's types."""
        fields = {name: getattr(self, name) for name in ("learner", "name", "printed", "seconds")}
        return fields | {"verdict": self.verdict.to_dict(), "picture": self.picture and vars(self.picture)}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "Grade":
        """The grade that `to_dict` described. Raises TypeError, KeyError or ValueError if it is none."""
        picture = fields["picture"] and Picture(**fields["picture"])
        return cls(**fields | {"verdict": Verdict.from_dict(fields["verdict"]), "picture": picture})


@dataclass(frozen=True)
class Report:
    """The grades of a class.

    Attributes:
      seed: what the shapes and inputs were drawn from.
      sandboxed: False if answers ran with the rights of whoever graded.
      grades: one for every learner and exercise, see `completed`.
      others: further answers to the same exercises, which do not count.
      unread: for each learner, the names of what is no answer.
      picture_of: looks up a grade's picture where `grades` go without: a thousand of them are much to remember.
    """

    seed: int
    sandboxed: bool
    grades: Sequence[Grade]
    others: Sequence[Grade] = ()
    unread: Mapping[str, Sequence[str]] = field(default_factory=dict)
    picture_of: Callable[[Grade], Picture | None] = lambda grade: grade.picture

    def write(self, folder: Path, gradescope: bool = False):
        """Writes grades.csv, grades.json and the learners' pages into a folder, for Gradescope its results too."""
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / CSV, self.csv())
        of_learners = {
            learner: list(grades) for learner, grades in itertools.groupby(self.grades, lambda grade: grade.learner)
        }
        content = {"seed": self.seed, "sandboxed": self.sandboxed, "versions": versions()}
        content["grades"] = [_entry(grade) | {"feedback": self._pages[grade.learner]} for grade in self.grades]
        content["others"] = [_entry(grade) for grade in self.others]
        content["not_looked_at"] = {learner: list(files) for learner, files in self.unread.items() if files}
        write_whole(folder / JSON, json.dumps(content, indent=2) + "\n")
        (folder / PAGES).mkdir(exist_ok=True)
        for learner, grades in of_learners.items():
            write_whole(folder / self._pages[learner], self.page(learner, grades))
            if gradescope:
                place = folder / GRADESCOPE / Path(self._pages[learner]).stem
                place.mkdir(parents=True, exist_ok=True)
                write_whole(place / "results.json", json.dumps(self.results(grades), indent=2) + "\n")

    @functools.cached_property
    def _pages(self) -> dict[str, str]:
        """Where each learner's page is, in the report's folder."""
        names = file_names(dict.fromkeys(grade.learner for grade in self.grades))
        return {learner: f"{PAGES}/{name}.html" for learner, name in names.items()}

    def csv(self) -> str:
        """A table with one row for each grade."""
        out = io.StringIO()
        rows = csv.writer(out)
        rows.writerow(["learner", "exercise", "verdict", "score", "reason", "feedback"])
        note = "" if self.sandboxed else " (graded without a sandbox)"
        for grade in self.grades:
            learner, reason = _cell(grade.learner), _cell(grade.reason + note)
            verdict, page = grade.verdict, self._pages[grade.learner]
            rows.writerow([learner, _cell(verdict.exercise), verdict.outcome, grade.score, reason, page])
        return out.getvalue()

    def results(self, grades: Sequence[Grade]) -> dict[str, Any]:
        """One learner's grades as Gradescope's results.json has them: one test for each exercise."""
        tests = [
            {
                "name": grade.verdict.exercise or grade.name or "answers",
                "score": grade.score,
                "max_score": 1,
                "status": "passed" if grade.score else "failed",
                "output": str(grade.verdict),
                "output_format": "text",
                "visibility": "visible",
            }
            for grade in grades
        ]
        return {
            "score": sum(grade.score for grade in grades),
            "execution_time": round(sum(grade.seconds for grade in grades)),
            "output": _note(self.seed, self.sandboxed),
            "output_format": "text",
            "stdout_visibility": "hidden",
            "tests": tests,
        }

    def page(self, learner: str, grades: Sequence[Grade]) -> str:
        """One learner's feedback: a page of HTML that needs nothing else, and in which nothing can run."""
        others = [grade for grade in self.others if grade.learner == learner]
        rows = "".join(
            f'<tr><th scope="row">{html.escape(_titled(grade))}</th><td>{grade.verdict.outcome}</td>'
            f"<td>{grade.score}</td></tr>"
            for grade in grades
        )
        head = '<tr><th scope="col">exercise</th><th scope="col">verdict</th><th scope="col">score</th></tr>'
        sections = "".join(
            _section(grade, self.picture_of(grade), [o for o in others if o.verdict.exercise == grade.verdict.exercise])
            for grade in grades
        )
        unread = ", ".join(self.unread.get(learner, ()))
        return _PAGE.format(
            learner=html.escape(learner),
            table=f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>",
            sections=sections,
            unread=f"<p>Not looked at, since these are no answers: {html.escape(unread)}.</p>" if unread else "",
            note=html.escape(_note(self.seed, self.sandboxed)),
        )


@functools.cache
def _note(seed: int, sandboxed: bool) -> str:
    without = "" if sandboxed else "It was graded without a sandbox. "
    used = ", ".join(f"{name} {version}" for name, version in versions().items())
    return f"{without}The seed was {seed}: with it the same answers get the same grades again ({used})."


def completed(
    graded: Iterable[Grade],
    learners: Iterable[str],
    asked: Iterable[str] = (),
    unread: Mapping[str, Sequence[str]] | None = None,
) -> list[Grade]:
    """One grade for every learner and every exercise that was asked for, or that anybody answers: the best one.

    A file in which nobody could tell what it answers keeps a row of its own.

    Args:
      graded: all grades.
      learners: everybody who must have grades.
      asked: exercises that everybody must have a grade for.
      unread: for each learner, the names of what is no answer.
    """
    order = [NOT_ATTEMPTED, NOT_JUDGED, NOT_PASSED, PASSED]
    known = set(exercises.names())
    best: dict[tuple[str, str, str], Grade] = {}
    for grade in sorted(
        graded, key=lambda grade: grade.name
    ):  # not as they came: which of two equals stays is the same
        exercise = grade.verdict.exercise
        key = grade.learner, exercise, "" if exercise in known else grade.name
        if key not in best or order.index(grade.verdict.outcome) > order.index(best[key].verdict.outcome):
            best[key] = grade
    found = {exercise for _, exercise, _ in best if exercise in known} | set(asked)
    for learner in learners:
        files = (unread or {}).get(learner, ())
        text = "There is no answer to this exercise."
        if files:
            text += f" What is there is no notebook, Python file or file of `submit`: {_some(files)}."
        missing = Finding("not attempted", text)
        for exercise in found or {""}:
            key = learner, exercise, ""
            best.setdefault(key, Grade(learner, "", Verdict(exercise, NOT_ATTEMPTED, (missing,))))
    return [best[key] for key in sorted(best)]


def _some(files: Sequence[str], most: int = 5) -> str:
    more = f" and {len(files) - most:,} more" if len(files) > most else ""
    return ", ".join(files[:most]) + more


def file_names(learners: Iterable[str]) -> dict[str, str]:
    """A file's name for each learner, without suffix, that any system takes; two learners have two of them, also where
    capitals do not count."""
    learners = list(learners)
    count, names = Counter(map(str.casefold, learners)), {}
    for learner in learners:
        plain = re.sub(r"[^a-zA-Z0-9._ -]+", "_", learner)[:60].strip(" .") or "learner"
        clear = plain == learner and count[learner.casefold()] == 1
        names[learner] = plain if clear else f"{plain}-{hashlib.sha256(learner.encode()).hexdigest()[:10]}"
    return names


def _cell(text: str) -> str:
    """A text that a spreadsheet takes for one: a quote in front of what it would calculate."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")) else text


def _entry(grade: Grade) -> dict[str, Any]:
    return {
        "learner": grade.learner,
        "file": grade.name,
        "score": grade.score,
        "reason": grade.reason,
        "seconds": round(grade.seconds, 3),
        "printed": grade.printed,
        "verdict": grade.verdict.to_dict(),
    }


def _titled(grade: Grade) -> str:
    return grade.verdict.exercise or grade.name or "all exercises"


def _section(grade: Grade, picture: Picture | None, others: Sequence[Grade]) -> str:
    title = html.escape(_titled(grade))
    parts = [f"<h2>{title}</h2>", f"<p>From {html.escape(grade.name)}.</p>" if grade.name else ""]
    verdict = grade.verdict if grade.verdict.exercise else dataclasses.replace(grade.verdict, exercise=grade.name)
    parts.append(verdict.html())
    if picture:
        title = html.escape(picture.title)
        # Whoever has no mouse scrolls what has the focus.
        region = f'<div class="programs" role="region" aria-label="{title}" tabindex="0">{picture.html()}</div>'
        parts.append(_folded(title, region))
    if grade.printed.strip():
        printed = "".join(c if c.isprintable() or c == "\n" else "�" for c in grade.printed)
        parts.append(_folded("What your answer printed", f"<pre>{html.escape(printed)}</pre>"))
    if others:
        rows = "".join(f"<li>{html.escape(o.name)}: {o.verdict.outcome}. {html.escape(o.reason)}</li>" for o in others)
        parts.append(f"<p>You handed in more than one answer, and the best one counts. The others:</p><ul>{rows}</ul>")
    return f"<section>{''.join(parts)}</section>"


def _folded(title: str, inner: str) -> str:
    return f"<details><summary>{title}</summary>{inner}</details>"


# JupyterLab's variables, which the views are made with, have values here. Whatever a learner's text holds, nothing in
# the page may run or be fetched.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Feedback for {learner}</title>
<style>
:root {{ color-scheme: light; --jp-success-color1: #1b7f3b; --jp-warn-color1: #d55e00; --jp-info-color1: #0072b2; }}
body {{ margin: 0 auto; padding: 1em 2em; max-width: 90em; font: 1rem/1.5 system-ui, sans-serif; color: #1a1a1a;
  background: #fff; overflow-wrap: break-word; }}
table {{ border-collapse: collapse; }}
th, td {{ padding: 0.2em 1em 0.2em 0; text-align: left; vertical-align: top; }}
tbody th, td {{ overflow-wrap: anywhere; }}
@media (max-width: 40em) {{ body {{ padding: 1em; }} }}
section {{ margin-top: 2em; border-top: 1px solid #767676; }}
details {{ margin: 0.5em 0; }}
summary {{ cursor: pointer; }}
pre {{ white-space: pre-wrap; }}
.programs {{ overflow-x: auto; }}
.programs .rematscope .rs-programs td {{ overflow-x: visible; max-width: none; }}
</style>
</head>
<body>
<main>
<h1>Feedback for {learner}</h1>
{table}
{sections}
{unread}
<p>{note}</p>
</main>
</body>
</html>
"""
