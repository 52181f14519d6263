"""The answers in each exercise's `wrong.py` and `right.py`, with which it is tested, and their verdicts."""

import contextlib
import functools
import importlib
import inspect
import json
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grader.classroom.collect import Submission
from grader.exercises import registry
from grader.exercises.spec import Case, Question
from grader.isolation.sandboxed import libc, system_calls
from grader.judging import judge
from grader.judging.wrong_data import differences
from grader.judging.wrong_results import failures
from grader.stablehlo.execution import Execution
from grader.stablehlo.types import ProgramError
from grader.tracing import capture
from grader.tracing.evidence import Evidence
from grader.verdicts.verdict import Finding, Verdict


def notebook(*cells: str) -> str:
    """Return a notebook of code cells, as its file's text."""
    content = [{"cell_type": "code", "source": cell} for cell in cells]
    return json.dumps({"cells": content, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


class Wrong(NamedTuple):
    """A wrong answer, and the finding that must name its mistake.

    That finding contains `words` and lists `cases`, or any cases if None. `where` takes the structure of a question and
    returns whether the answer is wrong there; None if this is not tested. `remat3` is False if the answer is right
    under `jax_remat3`, which asks policies about names and matmuls only. `beyond` names the numeric bound that the
    answer just exceeds, and the number of steps by which the bound must be loosened for the answer to pass. `hints`
    contains the keys of the possible first hints; there are several if the drawn cases decide which mistake is found.
    """

    answer: Callable
    kind: str
    words: tuple[str, ...]
    cases: tuple[str, ...] | None
    where: Callable[..., bool] | None = None
    remat3: bool = True
    beyond: tuple[str, int] | None = None
    hints: tuple[str, ...] = ()


class Right(NamedTuple):
    """A right answer, and whether its verdict contains advice."""

    answer: Callable
    advised: bool


class Answers(dict):
    """The answers of a module, by their functions' names or the given names."""

    def fails_with(self, kind, *words, hint=(), name=None, cases=None, where=None, remat3=True, beyond=None, steps=1):
        def note(answer):
            by = (beyond, steps) if beyond else None
            hints = (hint,) if isinstance(hint, str) else hint
            self[name or answer.__name__] = Wrong(answer, kind, words, cases, where, remat3, by, hints)
            return answer

        return note

    def passes(self, answer):
        self[answer.__name__] = Right(answer, advised=False)
        return answer

    def passes_with_advice(self, answer):
        self[answer.__name__] = Right(answer, advised=True)
        return answer


def also_run_backward(function: Callable, value: jax.Array, *operands: jax.Array) -> jax.Array:
    """Return `value`; the backward pass through it also runs `function(*operands)`, whose result has no effect."""

    @jax.custom_vjp
    def unchanged(value, *operands):
        return value

    def backward(operands, ct):
        return ct + 0 * jnp.sum(function(*operands)).astype(ct.dtype), *map(jnp.zeros_like, operands)

    unchanged.defvjp(lambda value, *operands: (value, operands), backward)
    return unchanged(value, *operands)


def wrong(slug: str) -> dict[str, Wrong]:
    return importlib.import_module(f"{slug}.wrong").WRONG


def right(slug: str) -> dict[str, Right]:
    return importlib.import_module(f"{slug}.right").RIGHT


ROOT = Path(__file__).parents[2]


def shipped(slug: str, kind: str) -> dict[str, Callable]:
    """Return an exercise's shipped answers of one kind ("worked", "right", "wrong" or "keyed") by name."""
    if kind == "worked":
        return {slug: getattr(importlib.import_module(f"solutions.{slug}"), slug)}
    if kind == "keyed":
        return importlib.import_module("keyed").KEYED.get(slug, {})
    return {name: each.answer for name, each in {"right": right, "wrong": wrong}[kind](slug).items()}


_MARKS = """
from collections.abc import Callable

import jax
import jax.numpy as jnp


class Answers(dict):
    def passes(self, answer, name=None):
        return self.setdefault(name or answer.__name__, answer)

    def fails_with(self, *_, name=None, **__):
        return lambda answer: self.passes(answer, name)

    passes_with_advice = passes


"""


def as_submission(slug: str, kind: str, name: str) -> Submission:
    """Return a shipped answer as a learner's file: the source of its module, and its name bound to the answer."""
    if kind == "worked":
        return Submission("a learner", f"{slug}.py", (ROOT / "solutions" / f"{slug}.py").read_bytes(), slug)
    path, found, of = ("keyed", "KEYED", f"[{slug!r}]") if kind == "keyed" else (f"{slug}/{kind}", kind.upper(), "")
    module = (ROOT / "tests" / "grader" / "catalog" / f"{path}.py").read_text()
    marks = _MARKS + inspect.getsource(also_run_backward) + "\n\n"
    module = re.sub(r"from sample_answers import .*\n", lambda _: marks, module)
    # Solutions cannot be imported in the sandbox.
    module = re.sub(r"from solutions\.\w+ import (\w+) as (\w+)\n", _without_import, module)
    text = f"""
def shipped(module):
    namespace = {{"__name__": "shipped"}}
    exec(compile(module, "shipped", "exec"), namespace)
    return namespace[{found!r}]{of}[{name!r}]

{slug} = shipped({module!r})
"""
    return Submission("a learner", f"{slug}.py", text.encode(), slug)


def _without_import(imported: re.Match[str]) -> str:
    text = (ROOT / "solutions" / f"{imported[1]}.py").read_text()
    return f"_own = {{}}\nexec({text!r}, _own)\n{imported[2]} = _own[{imported[1]!r}]\n"


@contextlib.contextmanager
def patches_undone() -> Iterator[None]:
    """Undo on exit all changes that wrong answers make to NumPy and JAX."""
    before = [(module, dict(vars(module))) for module in (np, jnp, np.testing)]
    yield
    for module, names in before:
        for name, value in names.items():
            if vars(module).get(name) is not value:
                setattr(module, name, value)


class _CompiledAgainstInterpreted(Execution):
    """Runs the answer's programs with XLA and the reference with NumPy."""

    def run(self, inputs, cotangents, reference):
        results = super().run(inputs, cotangents, reference)
        try:
            own = self.compiled(inputs, cotangents)
        except ProgramError:  # XLA cannot run collectives of several devices here
            own = results[:5]
        return *own, results[5]


def rounded_otherwise(answer: Callable, slug: str, seed: int) -> Verdict | None:
    """Return an answer's verdict if the reference is rounded differently from the answer, as on another machine or in
    another process; None for an answer that is plain data."""
    asked = cases(slug, seed)
    evidence = traced(answer, slug, seed)
    if isinstance(evidence, Verdict) or not evidence.forward:
        return None
    return judge.judge_text(evidence.to_json(), asked, slug, seed_of_inputs(seed), _CompiledAgainstInterpreted)


def sample[T](answers: Sequence[T], share: int) -> Sequence[T]:
    """Return one in `share` answers, evenly spaced; the run's seed determines the first."""
    return answers[random.Random(os.environ["REMAT_SEED"]).randrange(share) :: share]


def slow_unless_sampled(answers: Sequence[Any], share: int) -> list[Any]:
    """Return all answers for `pytest.mark.parametrize`; all except a sample of one in `share` are marked slow."""
    quick = set(sample(answers, share))
    return [
        pytest.param(
            *([answer] if isinstance(answer, str) else answer), marks=[] if answer in quick else pytest.mark.slow
        )
        for answer in answers
    ]


def named(answer: Wrong, findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that name the answer's mistake."""
    return [found for found in findings if answer.kind in found.kinds and all(w in _said(found) for w in answer.words)]


def _said(finding: Finding) -> str:
    return " ".join([finding.text, *(words for _, words in finding.details()), *finding.cases])


@functools.cache
def failed_questions(answer: Callable, slug: str) -> list[Question]:
    """Return the questions to which an answer that is plain data is wrong."""
    evidence = traced(answer, slug)
    assert isinstance(evidence, Evidence)
    task, expect = registry.task(slug), registry.expect(slug)
    failed = {seen.case for seen in failures(evidence, task, expect)}
    if not failed:
        failed = {seen.case for seen in differences(evidence, cases(slug), task, expect)}
    return [question for question in cases(slug) if question.name in failed]


# The functions below repeat the steps of `grading.grade` and cache each one, because many answers are tried in the same
# cases and several tests need the same verdict.


def verdict_on(answer: Callable, slug: str, seed: int = 0) -> Verdict:
    """Return an answer's verdict; `seed` seeds the shapes and the inputs."""
    evidence = _trace_as_sandboxed(answer, slug, seed, jax.config.jax_remat3)
    return evidence if isinstance(evidence, Verdict) else _judge_as_sandboxed(evidence.to_json(), slug, seed)


def traced(answer: Callable, slug: str, seed: int = 0) -> Evidence | Verdict:
    """Return an answer's evidence."""
    return _trace_as_sandboxed(answer, slug, seed, jax.config.jax_remat3)


@functools.cache
def cases(slug: str, seed: int = 0) -> Sequence[Case | Question]:
    return registry.cases(slug, int(_both_seeds(seed)[0]))


def own_cases(slug: str, seed: int = 0) -> Sequence[Case | Question]:
    """Return the cases of the task itself, without those drawn from its ranges."""
    return registry.task(slug).cases(np.random.default_rng(int(_both_seeds(seed)[0])))


def seed_of_inputs(seed: int = 0) -> int:
    return int(_both_seeds(seed)[1])


def _both_seeds(seed: int) -> np.ndarray:
    return np.random.SeedSequence(seed).generate_state(2)


def _refuse_as_the_sandbox_does() -> None:
    libc.prctl(38, 1)  # PR_SET_NO_NEW_PRIVS, which a process without root needs to install a filter
    system_calls.refuse()


# Filters of system calls apply per thread. All shipped answers are traced and judged in this thread, which shows that
# the sandbox's list allows all system calls that they need.
_as_in_the_sandbox = ThreadPoolExecutor(
    1, initializer=_refuse_as_the_sandbox_does if system_calls.is_known_machine() else int
)


def with_few_system_calls[Result](function: Callable[..., Result], *arguments: Any) -> Result:
    """Return the result of a function that runs with only the system calls that an answer in the sandbox may use."""
    return _as_in_the_sandbox.submit(function, *arguments).result()


@functools.cache
def _trace_as_sandboxed(answer: Callable, slug: str, seed: int, remat3: bool) -> Evidence | Verdict:
    return with_few_system_calls(capture.evidence_of, answer, slug, cases(slug, seed), int(_both_seeds(seed)[0]))


@functools.cache
def _judge_as_sandboxed(text: str, slug: str, seed: int) -> Verdict:
    return with_few_system_calls(judge.judge_text, text, cases(slug, seed), slug, seed_of_inputs(seed))
