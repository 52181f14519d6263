"""Report the grades of a class: as a table (.csv, .xlsx), JSON, a page per learner, and Gradescope's results."""

import functools
import hashlib
import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grader.classroom import spreadsheet
from grader.classroom.collect import NotGraded
from grader.classroom.feedback_page import feedback_page, grading_note
from grader.classroom.grade import Grade, Picture
from grader.exercises import registry
from grader.util.versions import versions
from grader.verdicts.verdict import Finding, FindingKind, Outcome, Verdict
from grader.verdicts.views import VerdictView
from rematscope.render import write_whole

CSV, XLSX, JSON, PAGES, GRADESCOPE = "grades.csv", "grades.xlsx", "grades.json", "feedback", "gradescope"
NOT_GRADED = "not_graded.csv"


@dataclass(frozen=True)
class Report:
    """The grades of a class.

    Attributes:
      seed: the seed of the shapes.
      sandboxed: whether answers ran in the sandbox, instead of with the privileges of the user who graded.
      grades: one grade per learner and exercise; see `complete_grades`.
      others: the grades of further answers to the same exercises, which do not count.
      not_graded: the files that have no grade.
      in_groups: whether each answer had its own control group; None if unknown.
      picture_of: returns a grade's picture. `grades` may not contain the pictures, because they take much memory.
    """

    seed: int
    sandboxed: bool
    grades: Sequence[Grade]
    others: Sequence[Grade] = ()
    not_graded: Sequence[NotGraded] = ()
    picture_of: Callable[[Grade], Picture | None] = lambda grade: grade.picture
    in_groups: bool | None = None

    def write(self, folder: Path, gradescope: bool = False):
        """Write grades.csv, .xlsx and .json, not_graded.csv, the learners' pages and, if requested, Gradescope's
        results into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / CSV, self.csv())
        write_whole(folder / XLSX, spreadsheet.xlsx(self._grade_table()))
        of_learners = {
            learner: list(grades) for learner, grades in itertools.groupby(self.grades, lambda grade: grade.learner)
        }
        content = {"seed": self.seed, "sandboxed": self.sandboxed, "versions": versions()}
        content["control_groups"] = self.in_groups
        content["grades"] = [
            _grade_entry(grade) | {"feedback": self._page_paths[grade.learner]} for grade in self.grades
        ]
        content["others"] = [_grade_entry(grade) for grade in self.others]
        content["not_graded"] = [asdict(each) for each in self.not_graded]
        write_whole(folder / JSON, json.dumps(content, indent=2) + "\n")
        rows = [["learner", "file", "reason"], *([f.learner, f.path, f.reason] for f in self.not_graded)]
        write_whole(folder / NOT_GRADED, spreadsheet.csv(rows))
        (folder / PAGES).mkdir(exist_ok=True)
        for learner, grades in of_learners.items():
            write_whole(folder / self._page_paths[learner], self.page(learner, grades))
            if gradescope:
                place = folder / GRADESCOPE / Path(self._page_paths[learner]).stem
                place.mkdir(parents=True, exist_ok=True)
                write_whole(place / "results.json", json.dumps(self.results(grades), indent=2) + "\n")

    @functools.cached_property
    def _page_paths(self) -> dict[str, str]:
        """The path of each learner's page, relative to the report's folder."""
        names = file_names(dict.fromkeys(grade.learner for grade in self.grades))
        return {learner: f"{PAGES}/{name}.html" for learner, name in names.items()}

    @property
    def not_the_answers(self) -> int:
        """The number of grades that are missing for a reason outside the answer, such as a killed process."""
        return sum(any(f.kind == FindingKind.MACHINE for f in grade.verdict.findings) for grade in self.grades)

    def csv(self) -> str:
        """Return a table with one row per grade."""
        return spreadsheet.csv(self._grade_table())

    def _grade_table(self) -> list[list[str | int]]:
        rows: list[list[str | int]] = [["learner", "exercise", "verdict", "score", "reason", "feedback"]]
        note = "" if self.sandboxed else " (graded without a sandbox)"
        for grade in self.grades:
            verdict, page = grade.verdict, self._page_paths[grade.learner]
            rows.append([grade.learner, verdict.exercise, str(verdict.outcome), grade.score, grade.reason + note, page])
        return rows

    def results(self, grades: Sequence[Grade]) -> dict[str, Any]:
        """Return one learner's grades in the format of Gradescope's results.json, with one test per exercise."""
        tests = [
            {
                "name": grade.verdict.exercise or grade.name or "answers",
                "score": grade.score,
                "max_score": 1,
                "status": "passed" if grade.score else "failed",
                "output": str(VerdictView(grade.verdict)),
                "output_format": "text",
                "visibility": "visible",
            }
            for grade in grades
        ]
        return {
            "score": sum(grade.score for grade in grades),
            "execution_time": round(sum(grade.seconds for grade in grades)),
            "output": self._grading_note,
            "output_format": "text",
            "stdout_visibility": "hidden",
            "tests": tests,
        }

    def page(self, learner: str, grades: Sequence[Grade]) -> str:
        """Return one learner's feedback as a self-contained HTML page that cannot run scripts."""
        others = [grade for grade in self.others if grade.learner == learner]
        not_graded = [each for each in self.not_graded if each.learner == learner]
        return feedback_page(learner, grades, others, not_graded, self.picture_of, self._grading_note)

    @property
    def _grading_note(self) -> str:
        return grading_note(self.seed, self.sandboxed, self.in_groups)


def complete_grades(
    graded: Iterable[Grade],
    learners: Iterable[str],
    asked: Iterable[str] = (),
    not_graded: Iterable[NotGraded] = (),
    unreadable: Mapping[str, str] | None = None,
) -> list[Grade]:
    """Return the best grade of every learner for every exercise that was requested or that any learner answered.

    A file whose exercise is unknown keeps its own row.

    Args:
      graded: all grades.
      learners: the learners who must have grades.
      asked: the exercises for which every learner must have a grade.
      not_graded: the files that have no grade.
      unreadable: maps learners to a file that could not be read, with the reason. The file may contain an answer.
    """
    order = [Outcome.NOT_ATTEMPTED, Outcome.NOT_JUDGED, Outcome.NOT_PASSED, Outcome.PASSED]
    known = set(registry.names())
    best: dict[tuple[str, str, str], Grade] = {}
    # Sorted, so that the choice between equal grades does not depend on their order.
    for grade in sorted(graded, key=lambda grade: grade.name):
        exercise = grade.verdict.exercise
        key = grade.learner, exercise, "" if exercise in known else grade.name
        if key not in best or order.index(grade.verdict.outcome) > order.index(best[key].verdict.outcome):
            best[key] = grade
    found = {exercise for _, exercise, _ in best if exercise in known} | set(asked)
    files: dict[str, list[str]] = defaultdict(list)
    for each in not_graded:
        files[each.learner].append(f"{each.path} ({each.reason})")
    for grade in best.values():
        if grade.name and grade.verdict.exercise not in known and grade.learner not in (unreadable or {}):
            files[grade.learner].append(f"{grade.name} (see its own row)")
    for learner in learners:
        text = "There is no answer to this exercise."
        if files[learner]:
            text += f" Not graded: {first_files(files[learner])}."
        outcome, kind = Outcome.NOT_ATTEMPTED, FindingKind.NOT_ATTEMPTED
        if reason := (unreadable or {}).get(learner):
            outcome, kind = Outcome.NOT_JUDGED, FindingKind.NOT_JUDGED
            text += f" A file that could not be read may contain an answer: {reason}."
        for exercise in found or {""}:
            best.setdefault(
                (learner, exercise, ""), Grade(learner, "", Verdict(exercise, outcome, (Finding(kind, text),)))
            )
    return [best[key] for key in sorted(best)]


def first_files(files: Sequence[str], most: int = 5) -> str:
    """Return the first files of many, and how many more there are."""
    more = f" and {len(files) - most:,} more" if len(files) > most else ""
    return ", ".join(files[:most]) + more


def file_names(learners: Iterable[str]) -> dict[str, str]:
    """Return a file name without suffix for each learner, which is valid on every system. The names of two learners
    differ by more than their case."""
    learners = list(learners)
    count, names = Counter(map(str.casefold, learners)), {}
    for learner in learners:
        plain = re.sub(r"[^a-zA-Z0-9._ -]+", "_", learner)[:60].strip(" .") or "learner"
        if _DEVICES.fullmatch(plain):
            plain = f"_{plain}"
        clear = plain == learner and count[learner.casefold()] == 1
        names[learner] = plain if clear else f"{plain}-{hashlib.sha256(learner.encode()).hexdigest()[:10]}"
    return names


# Names that Windows treats as devices, with any suffix.
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d) *(\..*)?", re.IGNORECASE)


def _grade_entry(grade: Grade) -> dict[str, Any]:
    return {
        "learner": grade.learner,
        "file": grade.name,
        "score": grade.score,
        "reason": grade.reason,
        "seconds": round(grade.seconds, 3),
        "code": grade.code,
        "printed": grade.printed,
        "verdict": grade.verdict.to_dict(),
    }
