"""Write a learner's feedback as one page of HTML without external resources or scripts."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
from markupsafe import Markup

from grader.classroom.collect import NotGraded
from grader.classroom.grade import Grade, Picture
from grader.util.versions import versions
from grader.verdicts.views import VerdictView


@functools.cache
def grading_note(seed: int, sandboxed: bool, in_groups: bool | None = None) -> str:
    """Return the note below all grades on how they were made. `in_groups` is that of `Report`."""
    without = "" if sandboxed else "It was graded without a sandbox. "
    used = ", ".join(f"{name} {version}" for name, version in versions().items())
    groups = {True: " Each answer had its own control group.", False: " No answer had a control group.", None: ""}
    return f"{without}The random shapes came from the seed {seed} ({used}).{groups[in_groups]}"


def feedback_page(
    learner: str,
    grades: Sequence[Grade],
    others: Sequence[Grade],
    not_graded: Sequence[NotGraded],
    picture_of: Callable[[Grade], Picture | None],
    note: str,
) -> str:
    """Return the feedback page of a learner.

    Args:
      learner: the name of the learner.
      grades: the learner's grades.
      others: the grades of the learner's further answers, which do not count.
      not_graded: the learner's files that have no grade.
      picture_of: a function that returns the picture of a grade.
      note: the text below all grades.
    """
    parts = [_page_part(grade, picture_of(grade), others) for grade in grades]
    return _load_template().render(learner=learner, parts=parts, not_graded=not_graded, note=note)


@dataclass(frozen=True)
class _Part:
    """The content of a section of the page."""

    title: str
    grade: Grade
    verdict: Markup
    picture: Picture | None
    programs: Markup | None
    printed: str
    others: Sequence[Grade]


def _page_part(grade: Grade, picture: Picture | None, others: Sequence[Grade]) -> _Part:
    verdict = grade.verdict if grade.verdict.exercise else dataclasses.replace(grade.verdict, exercise=grade.name)
    printed = "".join(c if c.isprintable() or c == "\n" else "�" for c in grade.printed)
    return _Part(
        title=grade.verdict.exercise or grade.name or "all exercises",
        grade=grade,
        verdict=VerdictView(verdict).html(),
        picture=picture,
        programs=Markup(picture.html()) if picture else None,
        printed=printed if grade.printed.strip() else "",
        others=[other for other in others if other.verdict.exercise == grade.verdict.exercise],
    )


@functools.cache
def _load_template() -> jinja2.Template:
    """Return the page's template, which escapes all values except `Markup`."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("feedback_page.html")
