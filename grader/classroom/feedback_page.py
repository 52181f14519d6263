"""One learner's feedback, a page of HTML that needs nothing else, and in which nothing can run."""

import dataclasses
import functools
import html
from collections.abc import Sequence

from grader.classroom.grade import Grade, Picture
from grader.util.versions import versions
from grader.verdicts.verdict_view import VerdictView


@functools.cache
def note(seed: int, sandboxed: bool) -> str:
    without = "" if sandboxed else "It was graded without a sandbox. "
    used = ", ".join(f"{name} {version}" for name, version in versions().items())
    return f"{without}The seed was {seed}: with it the same answers get the same grades again ({used})."


def titled(grade: Grade) -> str:
    return grade.verdict.exercise or grade.name or "all exercises"


def section(grade: Grade, picture: Picture | None, others: Sequence[Grade]) -> str:
    title = html.escape(titled(grade))
    parts = [f"<h2>{title}</h2>", f"<p>From {html.escape(grade.name)}.</p>" if grade.name else ""]
    verdict = grade.verdict if grade.verdict.exercise else dataclasses.replace(grade.verdict, exercise=grade.name)
    parts.append(VerdictView(verdict).html())
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
PAGE = """<!DOCTYPE html>
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
