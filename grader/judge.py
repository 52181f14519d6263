"""Judge evidence: run both programs on fresh inputs, compare with the reference, see what crossed and what was redone.

Nothing here runs a line of the learner's code, and nothing is looked up in a module when values are compared: a patched
`jnp.allclose` decides nothing.
"""

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from grader import capture, data, programs
from grader.evidence import Evidence, Failure, Traced
from grader.execution import Execution, Function, split
from grader.exercise import Case, Question
from grader.programs import Matmul, ProgramError, TensorType
from grader.requirements import Behaviour, Mistake, Residual
from grader.verdict import NOT_ATTEMPTED, NOT_JUDGED, NOT_PASSED, PASSED, Finding, Verdict
from rematscope.program import type_text

# Relative to an array's largest element. Values and gradients pass through a handful of roundings.
TOLERANCE = {"float16": 8e-3, "bfloat16": 4e-2, "float32": 1e-5, "float64": 1e-12}
# A saved value is compared with a value of the reference's that is made in the same few operations.
NAMING_TOLERANCE = {"float16": 1e-3, "bfloat16": 4e-3, "float32": 2e-6, "float64": 1e-14}

_UNUSUAL = Mistake(
    "its value is not the one asked for",
    function=None,
    next="Which step of the pipeline is missing, different, or one too many?",
)


def judge(
    evidence: Evidence,
    cases: Sequence[Case | Question],
    task: ModuleType,
    expect: ModuleType,
    seed: int,
    execute: Callable[..., Execution] = Execution,
) -> Verdict:
    """Judges what an answer does.

    Args:
      evidence: what capture made of the answer in these cases.
      cases: the same cases, or questions.
      task: the exercise's `task` module.
      expect: the exercise's `expect` module.
      seed: seed of the random inputs; draw a fresh one after capture.
      execute: makes of the answer's programs what runs them; `Execution` runs them in this process.
    """
    if any(traced.failure and traced.failure.kind == "not attempted" for traced in evidence.cases):
        return Verdict(evidence.exercise, NOT_ATTEMPTED, (_not_attempted(evidence),))
    failures = _merge(
        (_gist(traced.failure), traced.case, _failure(traced, task, expect))
        for traced in evidence.cases
        if traced.failure
    )
    try:
        # Evidence is exported for the CPU; a learner's machine may have another device as its default.
        with jax.default_device(jax.devices("cpu")[0]):
            if failures:
                findings, shown = failures[:1], []
            elif isinstance(cases[0], Question):
                findings = _merge(data.differences(evidence, cases, task, expect))
                shown = [f"Right for {', '.join(question.name for question in cases)}."]
            else:
                findings, shown = Trial(evidence, cases, task, expect, seed, execute).findings(expect.requirements)
    except ProgramError as error:
        reason = Finding("could not be judged", f"Your answer could not be judged: {error}")
        return Verdict(evidence.exercise, NOT_JUDGED, (reason,))
    if {finding.kind for finding in findings} & _BEFORE_REQUIREMENTS:
        findings = [*_argument_order(evidence, task), *findings]
    mistaken = any(not finding.advice for finding in findings)
    return Verdict(
        evidence.exercise, NOT_PASSED if mistaken else PASSED, tuple(findings), () if mistaken else tuple(shown)
    )


# What arguments that come in another order than the answer takes them in would explain.
_BEFORE_REQUIREMENTS = {"raises", "wrong type", "wrong value", "wrong gradient"}


def _merge(found: Iterator[tuple[object, str, Finding]]) -> list[Finding]:
    """The same finding of several cases is one finding, with the figures of the first."""
    first: dict[object, Finding] = {}
    seen: dict[object, list[str]] = {}
    for key, case, finding in found:
        first.setdefault(key, finding)
        seen.setdefault(key, []).append(case)
    return [dataclasses.replace(finding, cases=tuple(seen[key])) for key, finding in first.items()]


def _not_attempted(evidence: Evidence) -> Finding:
    return Finding(
        "not attempted",
        f"{evidence.exercise} is still the stub that the page came with.",
        next="Replace its body with your answer, run the cell or save the file, then check again.",
    )


_ERROR_QUESTIONS = (
    (r"^NameError|^UnboundLocalError", "Is that name spelled right, and is it imported or defined above?"),
    (r"^AttributeError|^ImportError", "Is that name spelled right, and is it where you look for it?"),
    (r"^KeyError", "Is that key there every time that line runs? What does it run for when the key is missing?"),
    (
        r"positional argument|unexpected keyword|multiple values",
        "Which arguments does that function take, and which is it given?",
    ),
    (r"unhashable", "Which value there is a list or a dict, where one is wanted that cannot change, such as a string?"),
    (r"not callable|Expected a callable", "Which value there is called as a function, and what is it really?"),
)


def _gist(failure: Failure) -> tuple:
    # A message has the case's shapes in it; the exception's type and the line are the same in every case.
    return failure.kind, failure.text.split(":")[0], failure.source


def _failure(traced: Traced, task: ModuleType, expect: ModuleType) -> Finding:
    failure = traced.failure
    if failure.kind == "returned":
        kind, text = "wrong type", failure.text
        questions = expect.error_questions
        default = f"What should {task.signature} return?"
    else:
        kind, text = "raises", f"Your answer raises {failure.text}"
        questions = (*expect.error_questions, *_ERROR_QUESTIONS)
        default = "What are the shapes and types of the values in that line?"
    question = next((question for pattern, question in questions if re.search(pattern, failure.text)), default)
    return Finding(kind, text, source=failure.source, next=question)


def _argument_order(evidence: Evidence, task: ModuleType) -> Iterator[Finding]:
    # Names decide nothing: this explains results that are wrong already.
    asked = task.parameters
    if evidence.parameters != asked and sorted(evidence.parameters) == sorted(asked):
        yield Finding(
            "argument order",
            f"Your answer takes its arguments as ({', '.join(evidence.parameters)}); they come in another order.",
            expected=task.signature,
            got=f"({', '.join(evidence.parameters)})",
            next="In which order does the page list the arguments?",
        )


class Trial:
    """One run of an answer's programs and of the reference on the same inputs. Raises ProgramError."""

    def __init__(
        self,
        evidence: Evidence,
        cases: Sequence[Case],
        task: ModuleType,
        expect: ModuleType,
        seed: int,
        execute: Callable[..., Execution] = Execution,
    ):
        rng = np.random.default_rng(seed)
        self.evidence, self.cases, self.task, self.expect = evidence, tuple(cases), task, expect
        self.mistake: Mistake | None = None
        self.asked = {name for _, group in expect.requirements for requirement in group for name in requirement.names}
        self.sizes = [n for traced in evidence.cases for n in (traced.outputs, len(traced.sources))]
        self.max_turns = getattr(task, "max_turns", None)
        self.execution = execute(evidence.forward, evidence.backward, self.sizes, self.max_turns)
        self.forward, self.backward = self.execution.forward, self.execution.backward
        self.inputs = [[expect.draw(rng, argument) for argument in case.arguments] for case in cases]
        self.parameters = [capture.parameters(right(case, self.expect)) for case in cases]
        self._lay_out()
        self.cotangents = [[_cotangent(rng, kind) for kind in kinds] for kinds in self.output_types]
        self._run()

    def _lay_out(self):
        """Finds each case's values in the two programs and refuses evidence that does not add up."""
        self.forward_inputs = split(self.forward.inputs, [len(case.arguments) for case in self.cases])
        arguments = [TensorType(a.shape, str(a.dtype)) for case in self.cases for a in case.arguments]
        traced = self.evidence.cases
        outputs, types = split(self.forward.outputs, self.sizes), split(self.forward.output_types, self.sizes)
        self.outputs, self.residuals = outputs[::2], outputs[1::2]
        self.output_types, self.residual_types = types[::2], types[1::2]
        self.residual_memory = split(self.forward.output_memory, self.sizes)[1::2]
        self.gradients = split(self.backward.outputs, [len(case.arguments) for case in self.cases])
        self.cotangent_inputs = split(
            self.backward.inputs[sum(map(len, self.residuals)) :], [len(kind) for kind in self.output_types]
        )
        crossing = [kind for kinds in (self.residual_types, self.output_types) for case in kinds for kind in case]
        if (
            [traced.case for traced in traced] != [case.name for case in self.cases]
            or list(self.forward.input_types) != arguments
            or list(self.backward.input_types) != crossing
            or list(self.backward.output_types) != arguments
            or len(self.forward.outputs) != sum(self.sizes)
        ):
            raise ProgramError("its two programs do not fit this exercise's cases.")
        self._keep_cases_apart()

    def _keep_cases_apart(self):
        """Refuses a case that takes from another one: what that one keeps would count as a constant here."""
        kept = split(self.backward.inputs[: sum(map(len, self.residuals))], [len(case) for case in self.residuals])
        for index in range(len(self.cases)):
            forward = self.forward.needed_for([*self.outputs[index], *self.residuals[index]])
            backward = self.backward.needed_for(self.gradients[index])
            others = forward.intersection(self.forward.inputs).difference(self.forward_inputs[index])
            own = {*kept[index], *self.cotangent_inputs[index]}
            if others or not backward.intersection(self.backward.inputs) <= own:
                raise ProgramError("its two programs mix this exercise's cases, of which each is a call by itself.")

    def _run(self):
        """Runs the answer's programs and the reference."""
        reference, self.reference_flops = _reference(self.cases, self.expect, tuple(map(tuple, self.output_types)))
        self.got_outputs, self.got_residuals, self.got_gradients, turns, self.wanted = self.execution.run(
            self.inputs, self.cotangents, reference
        )
        self.forward, self.backward = self.forward.counted(turns[0]), self.backward.counted(turns[1])
        self.turns = sum(int(count) for counts in turns for count in counts)

    def findings(self, requirements) -> tuple[list[Finding], list[str]]:
        """What stands against the answer, by these requirements; or advice and what was shown if nothing does.

        One step at a time: what stands in the way of the next step is all that is said.
        """
        if self.max_turns is not None and self.turns >= self.max_turns:
            return [self._endless()], []
        for results in (self.wrong_type, self.wrong_value, self.wrong_gradients):
            wrong = _merge((key, case.name, found) for i, case in enumerate(self.cases) for key, found in results(i))
            if wrong:
                return wrong, []
        advice, shown = [], []
        for names, group in requirements:
            seen = [self.behaviours[index] for index, case in enumerate(self.cases) if case.name in names]
            found = _merge(
                ((number, finding.kind), behaviour.case, finding)
                for behaviour in seen
                for number, requirement in enumerate(group)
                for finding in requirement.findings(behaviour)
            )
            mistakes = [finding for finding in found if not finding.advice]
            if mistakes:
                return list(_without_consequences(mistakes)), []
            advice += found
            where = "; ".join(behaviour.case for behaviour in seen)
            if claims := [claim for requirement in group if (claim := requirement.claim())]:
                shown.append(f"{where}: {'; '.join(claims)}.")
        return advice, ["Values and gradients match the reference in every case.", *shown]

    def _endless(self) -> Finding:
        return Finding(
            "does not end",
            f"The loops of your two passes were stopped: they had taken {self.max_turns:,} turns.",
            next="What ends each of your loops, in the backward pass too? Does every turn come closer to it?",
        )

    # Each of these yields a key, the same for the same finding in another case, and a finding.

    def wrong_type(self, index: int) -> Iterator[tuple[object, Finding]]:
        output, structure = self.wanted[index][0], self.evidence.cases[index].output
        asked = TensorType(output.shape, str(output.dtype))
        if structure != "*" or self.output_types[index] != [asked]:
            kinds = ", ".join(map(type_text, self.output_types[index]))
            got = kinds if structure == "*" else f"{structure} of {kinds}"
            finding = Finding(
                "wrong type",
                f"Your answer returns {got} where {type_text(asked)} is asked for.",
                expected=type_text(asked),
                got=got,
                next=f"What should {self.task.signature} return?",
            )
            yield structure, finding

    def wrong_value(self, index: int) -> Iterator[tuple[object, Finding]]:
        output, got = self.wanted[index][0], self.got_outputs[index][0]
        if not _close(got, output, TOLERANCE):
            mistake = self._mistake(index)
            finding = Finding(
                "wrong value",
                f"Your answer computes something else: {mistake.says}.",
                expected=_example(output),
                got=_example(got),
                next=mistake.next,
            )
            yield "value", finding

    def wrong_gradients(self, index: int) -> Iterator[tuple[object, Finding]]:
        gradients = self.wanted[index][1]
        for name, got, want in zip(self.parameters[index], self.got_gradients[index], gradients, strict=True):
            if not _close(got, want, TOLERANCE):
                if (_float(got) == 0).all():
                    how = "zero everywhere"
                    question = "What keeps a gradient from flowing from the result back to this argument?"
                elif np.isnan(_float(got)).any():
                    how = "NaN"
                    question = "Which value that nobody uses has no finite derivative, so that zero times it is NaN?"
                else:
                    how = "wrong"
                    question = "What takes part in the value but not, or differently, in the gradient?"
                finding = Finding(
                    "wrong gradient",
                    f"The value is right, but the gradient with respect to {name} is {how}.",
                    expected=_example(want),
                    got=_example(got),
                    next=question,
                )
                yield (name, how), finding

    def _mistake(self, index: int) -> Mistake:
        """Which of the exercise's usual mistakes gives the value; looked up for the first wrong case."""
        if self.mistake is None:
            wrong = _usual_mistakes(self.cases[index], self.expect)(*self.inputs[index])
            got = self.got_outputs[index][0]
            pairs = zip(self.expect.mistakes, wrong, strict=True)
            same = (mistake for mistake, value in pairs if _close(got, value, TOLERANCE))
            self.mistake = next(same, _UNUSUAL)
        return self.mistake

    @functools.cached_property
    def behaviours(self) -> list[Behaviour]:
        """What each case shows of saving and recomputing."""
        return [self._behaviour(index) for index in range(len(self.cases))]

    def _behaviour(self, index: int) -> Behaviour:
        named = self.wanted[index][2]
        asked = {name: value for name, value in named.items() if name in self.asked}
        copies = {f"a copy of {n}": a for n, a in zip(self.parameters[index], self.inputs[index], strict=True)}
        from_inputs = self.forward.dependent_on(self.forward_inputs[index])
        residuals = []
        for value, array, memory, source in zip(
            self.residuals[index],
            self.got_residuals[index],
            self.residual_memory[index],
            self.evidence.cases[index].sources,
            strict=True,
        ):
            if value in self.forward_inputs[index]:
                kind, name = "argument", self.parameters[index][self.forward_inputs[index].index(value)]
            elif value not in from_inputs:
                kind, name = "constant", "a constant"
            else:
                kind, name = "computed", _name(array, asked) or _name(array, named | copies)
            residuals.append(_residual(name, kind, array, memory, source))
        forward = self.forward.needed_for([*self.outputs[index], *self.residuals[index]])
        backward = self.backward.needed_for(self.gradients[index])
        from_cotangent = self.backward.dependent_on(self.cotangent_inputs[index])
        again = [m for m in self.backward.matmuls if m.value in backward]
        return Behaviour(
            case=self.cases[index].name,
            arguments=self.parameters[index],
            residuals=tuple(residuals),
            wanted={name: _residual(name, "computed", array) for name, array in asked.items()},
            recomputed=tuple(_each(m for m in again if m.value not in from_cotangent)),
            matmul_flops=sum(m.flops for m in self.forward.matmuls if m.value in forward) + sum(m.flops for m in again),
            reference_flops=self.reference_flops[index],
            barriers=sum(not backward.isdisjoint(barrier.values) for barrier in self.backward.barriers),
            peak=functools.cache(lambda: self._peak(index)),
        )

    def _peak(self, index: int) -> float:
        """What XLA sets aside for both passes of one case, beside arguments and results, in sizes of the arguments."""

        nbytes = self.execution.peak(index, self.inputs, self.cotangents)
        return nbytes / sum(array.nbytes for array in self.inputs[index])


# The reference depends on the exercise's cases and on nothing of the answer's but the types of what it returns. Whoever
# judges many answers in the same cases traces and compiles it once.


@functools.lru_cache(maxsize=32)
def _reference(
    cases: tuple[Case, ...], expect: ModuleType, returned: tuple[tuple[TensorType, ...], ...]
) -> tuple[Function, list[tuple[int, ...]]]:
    """A function of inputs and cotangents that returns each case's result, gradients and named values; and the FLOPs of
    each of its matmuls, case by case."""

    def reference(inputs, cotangents):
        results = []
        for case, arguments, given in zip(cases, inputs, cotangents, strict=True):
            output, pullback, named = jax.vjp(right(case, expect), *arguments, has_aux=True)
            # To an answer that returns something else no cotangent of the reference's fits, and it fails on that first.
            fits = jax.tree.map(jnp.shape, [output]) == jax.tree.map(jnp.shape, given)
            results.append((output, pullback(given[0].astype(output.dtype) if fits else output), named))
        return results

    cotangents = [[jax.ShapeDtypeStruct(kind.shape, kind.dtype) for kind in kinds] for kinds in returned]
    function = Function(reference, [list(case.arguments) for case in cases], cotangents)
    program = programs.read(function.text)
    values = jax.tree.unflatten(function.tree, program.outputs)
    needed = [program.needed_for([output, *gradients]) for output, gradients, _ in values]
    return function, [tuple(_each(m for m in program.matmuls if m.value in case)) for case in needed]


@functools.lru_cache(maxsize=32)
def _usual_mistakes(case: Case, expect: ModuleType) -> Function:
    """What computes the value that each of the exercise's usual mistakes leads to."""

    def run(*arguments):
        return [case.transform(case.apply(mistake.function))(*arguments) for mistake in expect.mistakes]

    return Function(run, *case.arguments)


def _each(matmuls: Iterable[Matmul]) -> Iterator[int]:
    """FLOPs of each single matmul: one in a loop is as many as the loop has turns."""
    return (matmul.flops // matmul.times for matmul in matmuls for _ in range(matmul.times))


def _without_consequences(findings: Sequence[Finding]) -> Iterator[Finding]:
    """What is computed again since it is not saved is no mistake of its own, and asks no question of its own."""
    missing = False
    for finding in findings:
        missing = missing or finding.kind in ("not saved", "wrong memory")
        if missing and finding.kind == "recomputes":
            finding = dataclasses.replace(finding, next="Does this follow from what is not saved?")
        yield finding


def right(case: Case, expect: ModuleType) -> Callable:
    """A case's reference: a function that returns the result and the values that have names."""
    return case.transform(expect.reference if case.function is None else _with_names(case.function))


def _with_names(function: Callable) -> Callable:
    """A case's function, which also returns the values that it names."""

    @functools.wraps(function)
    def both(*arguments):
        named = {}

        def name(value, called):
            named[called] = value
            return value

        return function(*arguments, name=name), named

    return both


def _cotangent(rng: np.random.Generator, kind: TensorType) -> np.ndarray:
    # Powers of two, so that they round nothing, but not 1: a gradient that ignores its cotangent is wrong.
    return rng.choice([-4, -2, -0.5, 0.5, 2, 4], size=kind.shape).astype(kind.dtype)


def _float(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _close(got: np.ndarray, want: np.ndarray, tolerance: dict[str, float]) -> bool:
    """Whether two arrays of one shape agree up to the tolerance of the wanted one's dtype; NaN agrees with nothing."""
    allowed = tolerance.get(str(want.dtype), 0.0)
    got, want = _float(got), _float(want)
    if got.shape != want.shape:
        return False
    if want.size == 0:
        return True
    return bool((abs(got - want) <= allowed * abs(want).max()).all())


def _name(array: np.ndarray, named: dict[str, np.ndarray]) -> str | None:
    """The value that an array equals: exactly if there is one, else transposed or within tolerance."""
    for name, value in named.items():
        if array.shape == value.shape and bool((_float(array) == _float(value)).all()):
            return name
    for name, value in named.items():
        for axes in itertools.permutations(range(array.ndim)) if array.ndim == value.ndim <= 4 else ():
            if _close(array.transpose(axes), value, NAMING_TOLERANCE):
                return name
    return None


def _residual(name, kind, array: np.ndarray, memory: str = "device", source: str | None = None) -> Residual:
    type_ = type_text(TensorType(array.shape, str(array.dtype)))
    return Residual(name, kind, type_, array.size * array.dtype.itemsize, memory, source)


def _example(array) -> str:
    """An array in a few characters: its first element, and its largest by absolute value."""
    values = _float(array)
    if array.ndim == 0:
        return f"{float(values):.6g}"
    largest = abs(values).max(initial=0.0)
    return f"{type_text(TensorType(array.shape, str(array.dtype)))}, up to {largest:.6g} in absolute value"
