"""Judge one answer's evidence."""

import dataclasses
import hashlib
from collections.abc import Sequence

import jax

from grader.exercises import registry
from grader.exercises.spec import Case, Expect, Question, Task, parameters_of
from grader.judging.answer_run import AnswerRun, Execute
from grader.judging.findings import all_right, failed_requirements, group_findings
from grader.judging.observe import observe_cases
from grader.judging.wrong_data import differences
from grader.judging.wrong_results import failures, wrong_results
from grader.stablehlo.execution import Execution
from grader.stablehlo.types import ProgramError
from grader.tracing.evidence import Evidence, FailureKind
from grader.util.jax_settings import default_settings
from grader.verdicts.verdict import Finding, FindingKind, Outcome, Verdict, not_judged


def judge(
    evidence: Evidence,
    cases: Sequence[Case | Question],
    task: Task,
    expect: Expect,
    seed: int,
    execute: Execute = Execution,
) -> Verdict:
    """Judge the evidence of an answer.

    Args:
      evidence: the evidence of the answer in these cases.
      cases: the cases or questions.
      task: the exercise's `task` module.
      expect: the exercise's `expect` module.
      seed: the seed of the random inputs, which must be generated after the answer was traced.
      execute: returns an object that runs the answer's programs. `Execution` runs them in this process.

    Returns:
      The verdict. It is `Outcome.NOT_JUDGED`, with the reason, if the evidence is inconsistent or the programs do not
      run.
    """
    if any(traced.failure and traced.failure.kind is FailureKind.NOT_ATTEMPTED for traced in evidence.cases):
        return Verdict(evidence.exercise, Outcome.NOT_ATTEMPTED, (_stub_finding(evidence),))
    try:
        # Evidence is exported for the CPU; a learner's machine may have another device as its default.
        with jax.default_device(jax.devices("cpu")[0]):
            findings, shown = _collect_findings(evidence, cases, task, expect, seed, execute)
    except ProgramError as error:
        return not_judged(evidence.exercise, f"Your answer could not be judged: {error}")
    if {finding.kind for finding in findings} & _BEFORE_REQUIREMENTS:
        findings = _find_argument_order(evidence, task, findings) or findings
    mistaken = any(not finding.advice for finding in findings)
    return Verdict(
        evidence.exercise,
        Outcome.NOT_PASSED if mistaken else Outcome.PASSED,
        tuple(findings),
        () if mistaken else tuple(shown),
    )


def _collect_findings(
    evidence: Evidence,
    cases: Sequence[Case | Question],
    task: Task,
    expect: Expect,
    seed: int,
    execute: Execute,
) -> tuple[list[Finding], list[str]]:
    """Return findings about an answer, and claims about what it saves and recomputes."""
    differentiated = [case for case in cases if isinstance(case, Case)]
    questions = [case for case in cases if isinstance(case, Question)]
    of_cases, of_questions = (
        dataclasses.replace(evidence, cases=part)
        for part in (evidence.cases[: len(differentiated)], evidence.cases[len(differentiated) :])
    )
    for part, count in ((of_cases, 0), (of_questions, len(questions))):
        if failed := group_findings(failures(part, task, expect), of=count):
            return failed[:1], []
    findings, shown = (
        _judge_programs(of_cases, differentiated, task, expect, seed, execute) if differentiated else ([], [])
    )
    if questions:
        wrong = group_findings(differences(of_questions, questions, task, expect), of=len(questions))
        findings = sorted([*findings, *wrong], key=lambda finding: finding.advice)
        shown = [*shown, all_right(questions)]
    return findings, shown


def _judge_programs(
    evidence: Evidence, cases: Sequence[Case], task: Task, expect: Expect, seed: int, execute: Execute
) -> tuple[list[Finding], list[str]]:
    """Return findings about an answer's results and residuals, and claims about them."""
    run = AnswerRun(evidence, cases, task, expect, seed, execute)
    if wrong := wrong_results(run):
        return wrong, []
    return failed_requirements([expect.requirements(case) for case in cases], observe_cases(run))


# Kinds of findings that arguments in the wrong order can cause.
_BEFORE_REQUIREMENTS = {FindingKind.RAISES, FindingKind.WRONG_TYPE, FindingKind.WRONG_VALUE, FindingKind.WRONG_GRADIENT}


def _find_argument_order(evidence: Evidence, task: Task, findings: Sequence[Finding]) -> list[Finding]:
    """Return the finding about arguments in the wrong order, which explains all others, or none."""
    # Parameter names never make an answer fail. They only explain results that are already wrong.
    asked = parameters_of(task)
    if evidence.parameters == asked or sorted(evidence.parameters) != sorted(asked):
        return []
    given, wanted = ", ".join(evidence.parameters), ", ".join(asked)
    text = f"Your answer takes its arguments in the order ({given}), but the grader passes them as ({wanted})."
    return [
        Finding(
            FindingKind.ARGUMENT_ORDER,
            " ".join([text, *(finding.text for finding in findings)]),
            expected=task.signature,
            got=f"{evidence.exercise}({given})",
            next="In which order does the page list the arguments?",
            cases=findings[0].cases,
            includes=tuple(dict.fromkeys(finding.kind for finding in findings)),
        )
    ]


def _stub_finding(evidence: Evidence) -> Finding:
    return Finding(
        FindingKind.NOT_ATTEMPTED,
        f"{evidence.exercise} is still the stub that the page came with.",
        next="Replace its body with your answer, run the cell or save the file, then check again.",
    )


@default_settings()
def judge_text(
    text: str, cases: Sequence[Case | Question], exercise: str, seed: int, execute: Execute = Execution
) -> Verdict:
    """Return the verdict on evidence. This runs only the answer's two programs.

    Args:
      text: evidence, as `Evidence.to_json` writes it.
      cases: the cases in which the answer was traced.
      exercise: the exercise's name.
      seed: the seed of the inputs.
      execute: see `judge`.

    Raises:
      EvidenceError: if the text is not valid evidence.
    """
    evidence = Evidence.from_json(text)
    verdict = judge(evidence, cases, registry.task(exercise), registry.expect(exercise), seed, execute)
    return dataclasses.replace(verdict, evidence=hashlib.sha256(text.encode()).hexdigest())
