"""Write one file with all answers and verdicts, which an instructor can grade."""

import json
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

from grader.answers import find
from grader.answers.submission_file import FORMAT, Answer, HandInError, checksum
from grader.exercises import registry
from grader.isolation import check_file
from grader.learner import pages
from grader.learner.progress import Attempt, Progress
from grader.util.fresh_files import create_fresh_file
from grader.util.versions import now, versions
from grader.verdicts.verdict import Verdict, not_judged
from rematscope.render import write_whole


def submit(path: Path | None = None) -> Path:
    """Write the best attempt at every exercise into one file: the last attempt that passed, or else the last attempt.

    Args:
      path: the file to write. If it exists, the new file gets a number in its name. None for a name with today's date
        in the current folder.

    Returns:
      The file that was written.

    Raises:
      HandInError: if no answer was ever checked, or if the file cannot be written.
    """
    progress = Progress()
    attempts = [attempt for attempt in progress.attempts() if attempt.exercise in registry.names()]
    if not attempts:
        why = " ".join(progress.notices) or "You have not checked any answer yet."
        raise HandInError(f"There is nothing to submit. {why} Check your answers first, then submit.")
    content = {
        "format": FORMAT,
        "time": now(),
        "versions": versions(),
        "answers": [
            _submission_entry([attempt for attempt in attempts if attempt.exercise == name])
            for name in sorted({attempt.exercise for attempt in attempts})
        ],
    }
    text = json.dumps(content | {"checksum": checksum(content)}, indent=2) + "\n"
    path = path or Path(f"remat-workbook-{date.today().isoformat()}.json")
    written = None
    try:
        written = create_fresh_file(path)
        write_whole(written, text)
    except OSError as error:
        if written:
            written.unlink(missing_ok=True)
        raise HandInError(f"Cannot write {path}: {error.strerror or error}. Choose another file or folder.") from None
    return written


def unchecked() -> list[str]:
    """Return a sentence for each page with an answer that was never checked and is therefore not handed in."""
    attempts = Progress().attempts()
    sentences = []
    for page in pages.exercises():
        try:
            found = find.read(page.path, page.name)
        except find.NoAnswer:
            continue
        known = {find.fingerprint(a.source) for a in attempts if a.exercise == page.name and a.source}
        if not found.is_stub() and find.fingerprint(found.text) not in known:
            sentences.append(
                f"The current answer in exercises/{page.path.name} was never checked, so it is not among them. Check "
                "it, then submit again."
            )
    return sentences


def regrade(answer: Answer) -> Verdict:
    """Grade an answer that was handed in, in a separate process."""
    if answer.exercise in registry.REMOVED:
        return not_judged(answer.exercise, registry.removal(answer.exercise))
    if not answer.source:
        return not_judged(answer.exercise, "The answer's text was not known when it was submitted.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{answer.exercise}.py"
        path.write_text(answer.source, encoding="utf-8")
        return check_file.check_file(path, exercise=answer.exercise)


def _submission_entry(attempts: list[Attempt]) -> dict[str, Any]:
    # An answer without text cannot be graded.
    _, best = max(enumerate(attempts), key=lambda pair: (pair[1].verdict.passed, pair[1].source != "", pair[0]))
    return {
        "exercise": best.exercise,
        "attempts": len(attempts),
        "time": best.time,
        "versions": best.versions,
        "verdict": best.verdict.to_dict(),
        "source": best.source,
    }
