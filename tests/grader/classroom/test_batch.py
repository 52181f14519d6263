"""Grading a class gives the same verdicts as the notebook, and every file in a folder of submissions has a row.

A few fixed answers and one in 1,000 of the shipped ones are graded on both paths. `tests/sweep.py` grades all of them.
"""

import csv
import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import bubblewrap
import pytest
import sample_answers
from command_line import run_here
from sample_answers import notebook

from grader.classroom import report, seeds
from grader.classroom.collect import Submission
from grader.classroom.grade import Grade
from grader.exercises import registry
from grader.isolation import control_groups
from grader.judging import judge
from grader.tracing import capture
from grader.tracing.evidence import Evidence
from grader.verdicts.verdict import Verdict

NAME = "checkpoint_dot_policy"
ROOT = Path(__file__).parents[3]
SEED = 5


@pytest.fixture(scope="module")
def grader(grader_in_sandbox):
    return grader_in_sandbox()


# One right answer is enough, because tests/grader/catalog/test_worked_answers.py tests each exercise's worked answer.
# The wrong answers cover extra residuals, plain data, a loop and derivatives by hand.
SOME = [
    (NAME, "right", 0),
    (NAME, "wrong", 0),
    ("predict_residuals", "wrong", 0),
    ("scan_layers", "wrong", 1),
    ("vjp_by_hand", "wrong", 2),
]


def shipped():
    kinds = {"right": sample_answers.right, "wrong": sample_answers.wrong}
    every = [(slug, kind, name) for slug in registry.names() for kind, of in kinds.items() for name in of(slug)]
    some = [(slug, kind, list(kinds[kind](slug))[place]) for slug, kind, place in SOME]
    return list(dict.fromkeys([*some, *sample_answers.sample(every, 1000)]))


@pytest.mark.slow
@pytest.mark.parametrize(("slug", "kind", "name"), shipped())
@bubblewrap.needed
def test_both_ways_lead_to_the_same_verdict(slug, kind, name, unpatched, grader):
    submission = sample_answers.as_submission(slug, kind, name)
    anew: dict = {}
    exec(submission.content, anew)
    shapes = seeds.seed_of_shapes(SEED, "a learner")
    cases = registry.cases(slug, shapes)
    here = capture.evidence_of(anew[slug], slug, cases, shapes)
    if isinstance(here, Evidence):
        here = judge.judge_text(here.to_json(), cases, slug, seeds.seed_of_inputs(SEED, here))
    there = grader.grade(submission, SEED).verdict
    assert comparable(there) == comparable(here)
    assert there.passed == (kind == "right")


def comparable(verdict):
    # Line numbers differ: in the sandbox, the answer is in a separate file.
    findings = [dataclasses.replace(finding, source=None).details() for finding in verdict.findings]
    texts = [(finding.kind, finding.text[:900], finding.nbytes, finding.flops) for finding in verdict.findings]
    # A class's pages show at most a thousand characters. NumPy's threads may add in another order there.
    return (
        verdict.outcome,
        texts,
        [[(what, _round_figures(words[:900])) for what, words in of] for of in findings],
        verdict.shown,
    )


def _round_figures(words):
    return re.sub(r"up to (\S+) in", lambda figure: f"up to {float(figure[1]):.3g} in", words)


RIGHT = (ROOT / "solutions" / f"{NAME}.py").read_text()
STUB = f"def {NAME}(w1, w2, x):\n    raise NotImplementedError\n"
OTHER = (ROOT / "solutions" / "count_residuals.py").read_text()
EXITS = f"import os\ndef {NAME}(w1, w2, x): os._exit(0)\n"


def handed_in(**sources):
    given = [{"exercise": name, "source": text, "verdict": {"outcome": "passed"}} for name, text in sources.items()]
    return json.dumps({"format": "remat-workbook submission 1", "answers": given})


@pytest.fixture
def folder(tmp_path):
    """Return a folder with submissions of every kind, in files and folders."""
    folder = tmp_path / "submissions"
    for name, text in {
        "ada/answer.py": RIGHT,
        "ada/stub.py": STUB,
        "ben/page.ipynb": notebook("%matplotlib inline", RIGHT),
        "ben/.ipynb_checkpoints/page.ipynb": notebook(EXITS),
        "cy/in/deep.json": handed_in(**{NAME: RIGHT, "count_residuals": ""}),
        "dora/01.py": OTHER,
        "dot..py": EXITS,
        "eve/01.py": OTHER,
        "eve/06.py": STUB,
        "empty/notes.txt": "I was ill.",
        "forged.json": "[" * 100_000,
        "=cmd\n.ipynb": "{",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "link.py").symlink_to(ROOT / "solutions" / f"{NAME}.py")
    os.mkfifo(folder / "pipe.py")
    with (folder / "big.ipynb").open("wb") as file:
        file.truncate(500 * 2**20)
    return folder


@bubblewrap.needed
def test_whatever_is_in_a_folder_has_a_row(folder, tmp_path):
    out = tmp_path / "grades"
    command = [sys.executable, "-m", "grader", "batch", folder, "--out", out, "--exercise", NAME, "--seed", "3"]
    command.append(bubblewrap.UNGROUPED)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "3  passed" in done.stdout and "the seed was 3" in done.stdout
    with (out / "grades.csv").open(newline="") as file:
        rows = {row["learner"]: row for row in csv.DictReader(file)}
    assert {learner: (row["verdict"], row["score"]) for learner, row in rows.items()} == {
        "ada": ("passed", "1"),
        "ben": ("passed", "1"),
        "cy": ("passed", "1"),
        "dora": ("not attempted", "0"),
        "dot.": ("could not be judged", "0"),
        "eve": ("not attempted", "0"),
        "empty": ("not attempted", "0"),
        "forged": ("could not be judged", "0"),
        "'=cmd\\n": ("could not be judged", "0"),
        "link": ("could not be judged", "0"),
        "pipe": ("could not be judged", "0"),
        "big": ("could not be judged", "0"),
    }
    assert "exited with status 0" in rows["dot."]["reason"] and "is a link" in rows["link"]["reason"]
    assert "no answer to this" in rows["dora"]["reason"] and "still the stub" in rows["eve"]["reason"]
    assert "524,288,000 bytes" in rows["big"]["reason"] and "not a file" in rows["pipe"]["reason"]
    content = json.loads((out / "grades.json").read_text())
    assert content["sandboxed"] and content["seed"] == 3 and len(content["grades"]) == len(rows)
    in_groups = not control_groups.why_none()
    assert content["control_groups"] is in_groups and ("had a control group" in done.stdout) is in_groups
    assert not any(grade["learner"] in ("dora", "eve") for grade in content["others"])


@pytest.mark.slow
@bubblewrap.needed
def test_the_same_seed_gives_the_same_grades_and_another_one_other_shapes(grader):
    wrong = RIGHT.replace("jax.checkpoint(", "(lambda f, policy: f)(")
    submission = Submission("ada", "answer.py", wrong.encode())
    first, again, other = (grader.grade(submission, seed).verdict for seed in (1, 1, 4))
    assert first == again and first.outcome == other.outcome == "not passed"
    assert [f.kind for f in first.findings] == [f.kind for f in other.findings]
    assert first.evidence != other.evidence


def test_the_best_of_several_answers_counts():
    def grade(outcome):
        return Grade("ada", outcome, Verdict(NAME, outcome))

    graded = [grade(outcome) for outcome in ("not passed", "passed", "could not be judged", "not attempted")]
    (best,) = report.complete_grades(graded, ["ada"])
    assert best.score == 1
    rows = report.complete_grades(graded, ["ada", "ben"], ["policy_from_rules"])
    assert [(g.learner, g.verdict.exercise, g.score) for g in rows] == [
        ("ada", NAME, 1),
        ("ada", "policy_from_rules", 0),
        ("ben", NAME, 0),
        ("ben", "policy_from_rules", 0),
    ]


FORGER = f"""
import json, os, socket
import jax
from grader.tracing import capture
from grader.isolation.sandboxed import messages, protocol
from grader.exercises import registry

def {NAME}(w1, w2, x):
    def honest(w1, w2, x):
        policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
        f = lambda w1, w2, x: ((jax.nn.relu(x @ w1) @ w2) ** 2).sum()
        return jax.checkpoint(f, policy=policy)(w1, w2, x)
    cases = registry.cases("{NAME}", SHAPES)
    forged = json.loads(capture.capture(honest, "{NAME}", cases).to_json())
    CHANGE
    messages.send(socket.socket(fileno=3), protocol.Captured(json.dumps(forged)))
    os._exit(0)
"""


@pytest.mark.parametrize(
    ("change", "outcome", "reason"),
    [
        ("pass", "passed", ""),  # what counts is the evidence, not how it was made
        ("forged['exercise'] = 'policy_from_rules'", "could not be judged", "not that of"),
        ("forged['cases'] = forged['cases'][:1]", "could not be judged", "do not match"),
        (  # the marker that stands for the learner's lines
            "forged['cases'][0]['failure'] = {'kind': 'raised', 'text': 'ValueError', 'source': '\\0boom'}",
            "could not be judged",
            "damaged",
        ),
        ("forged = 'x' * 30_000_000", "could not be judged", "invalid evidence"),
    ],
)
@bubblewrap.needed
def test_forged_evidence_gets_the_grade_of_its_programs(change, outcome, reason, grader):
    text = FORGER.replace("CHANGE", change).replace("SHAPES", str(seeds.seed_of_shapes(SEED, "a forger")))
    graded = grader.grade(Submission("a forger", "answer.py", text.encode()), SEED)
    assert graded.verdict.outcome.startswith(outcome) and reason in graded.reason, graded


@pytest.mark.parametrize(("out", "reason"), [("in/grades", "the next run would read it"), ("out", "no learner's")])
def test_a_folder_that_is_not_the_one_that_was_meant(out, reason, tmp_path):
    (tmp_path / "in").mkdir()
    status, printed, err = run_here("batch", tmp_path / "in", "--out", tmp_path / out)
    assert (status, printed) == (2, "") and reason in err and "folder" in err
    assert not (tmp_path / out).exists()


@pytest.mark.slow
def test_without_a_sandbox_nothing_is_graded_unless_requested(tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "ada.py").write_text(EXITS)
    monkeypatch.setenv("PATH", "/none")
    command = ["batch", tmp_path / "in", "--out", tmp_path / "out", "--exercise", NAME]
    status, _, err = run_here(*command)
    assert status == 2 and "install bubblewrap" in err.replace("\n", " ")
    assert not (tmp_path / "out").exists()
    command = [sys.executable, "-m", "grader", *command, "--unsandboxed"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0 and "without a sandbox" in done.stdout
    _, row = (tmp_path / "out" / "grades.csv").read_text().splitlines()
    assert "without a sandbox" in row and NAME in row
    assert json.loads((tmp_path / "out" / "grades.json").read_text())["sandboxed"] is False
