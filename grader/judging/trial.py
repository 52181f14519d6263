"""What an answer's programs did beside the reference, and what stands against them."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from grader.answers import apply
from grader.answers.evidence import Evidence
from grader.exercises.reference import right
from grader.exercises.requirements import Behaviour, Mistake
from grader.exercises.spec import Case
from grader.judging.compare import TOLERANCE, as_float, close, draw_cotangent, example, name_of, residual
from grader.stablehlo import reader
from grader.stablehlo.execution import Execution, Function, split
from grader.stablehlo.program import Matmul
from grader.stablehlo.types import ProgramError, TensorType
from grader.verdicts.verdict import Finding
from rematscope.ir.program import type_text

_UNUSUAL = Mistake(
    "its value is not the one asked for",
    function=None,
    next="Which step of the pipeline is missing, different, or one too many?",
)


def merge(found: Iterator[tuple[object, str, Finding]]) -> list[Finding]:
    """The same finding of several cases is one finding, with the figures of the first."""
    first: dict[object, Finding] = {}
    seen: dict[object, list[str]] = {}
    for key, case, finding in found:
        first.setdefault(key, finding)
        seen.setdefault(key, []).append(case)
    return [dataclasses.replace(finding, cases=tuple(seen[key])) for key, finding in first.items()]


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
        self.max_trip_count = getattr(task, "max_trip_count", None)
        self.execution = execute(evidence.forward, evidence.backward, self.sizes, self.max_trip_count)
        self.forward, self.backward = self.execution.forward, self.execution.backward
        self.inputs = [[expect.draw(rng, argument) for argument in case.arguments] for case in cases]
        self.parameters = [apply.parameters(right(case, self.expect)) for case in cases]
        self._lay_out()
        self.cotangents = [[draw_cotangent(rng, kind) for kind in kinds] for kinds in self.output_types]
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
        self.got_outputs, self.got_residuals, self.got_gradients, trip_counts, self.wanted = self.execution.run(
            self.inputs, self.cotangents, reference
        )
        self.forward, self.backward = self.forward.counted(trip_counts[0]), self.backward.counted(trip_counts[1])
        self.trip_count = sum(int(count) for counts in trip_counts for count in counts)

    def findings(self, requirements) -> tuple[list[Finding], list[str]]:
        """What stands against the answer, by these requirements; or advice and what was shown if nothing does.

        One step at a time: what stands in the way of the next step is all that is said.
        """
        if self.max_trip_count is not None and self.trip_count >= self.max_trip_count:
            return [self._endless()], []
        for results in (self.wrong_type, self.wrong_value, self.wrong_gradients):
            wrong = merge((key, case.name, found) for i, case in enumerate(self.cases) for key, found in results(i))
            if wrong:
                return wrong, []
        advice, shown = [], []
        for names, group in requirements:
            seen = [self.behaviours[index] for index, case in enumerate(self.cases) if case.name in names]
            found = merge(
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
            f"The loops of your two passes were stopped: they had taken {self.max_trip_count:,} turns.",
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
        if not close(got, output, TOLERANCE):
            mistake = self._mistake(index)
            finding = Finding(
                "wrong value",
                f"Your answer computes something else: {mistake.says}.",
                expected=example(output),
                got=example(got),
                next=mistake.next,
            )
            yield "value", finding

    def wrong_gradients(self, index: int) -> Iterator[tuple[object, Finding]]:
        gradients = self.wanted[index][1]
        for name, got, want in zip(self.parameters[index], self.got_gradients[index], gradients, strict=True):
            if not close(got, want, TOLERANCE):
                if (as_float(got) == 0).all():
                    how = "zero everywhere"
                    question = "What keeps a gradient from flowing from the result back to this argument?"
                elif np.isnan(as_float(got)).any():
                    how = "NaN"
                    question = "Which value that nobody uses has no finite derivative, so that zero times it is NaN?"
                else:
                    how = "wrong"
                    question = "What takes part in the value but not, or differently, in the gradient?"
                finding = Finding(
                    "wrong gradient",
                    f"The value is right, but the gradient with respect to {name} is {how}.",
                    expected=example(want),
                    got=example(got),
                    next=question,
                )
                yield (name, how), finding

    def _mistake(self, index: int) -> Mistake:
        """Which of the exercise's usual mistakes gives the value; looked up for the first wrong case."""
        if self.mistake is None:
            wrong = _usual_mistakes(self.cases[index], self.expect)(*self.inputs[index])
            got = self.got_outputs[index][0]
            pairs = zip(self.expect.mistakes, wrong, strict=True)
            same = (mistake for mistake, value in pairs if close(got, value, TOLERANCE))
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
                kind, name = "computed", name_of(array, asked) or name_of(array, named | copies)
            residuals.append(residual(name, kind, array, memory, source))
        forward = self.forward.needed_for([*self.outputs[index], *self.residuals[index]])
        backward = self.backward.needed_for(self.gradients[index])
        from_cotangent = self.backward.dependent_on(self.cotangent_inputs[index])
        again = [m for m in self.backward.matmuls if m.value in backward]
        return Behaviour(
            case=self.cases[index].name,
            arguments=self.parameters[index],
            residuals=tuple(residuals),
            wanted={name: residual(name, "computed", array) for name, array in asked.items()},
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
    program = reader.read(function.text)
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
    """FLOPs of each single matmul: one in a loop is as many as the loop's trip count."""
    return (matmul.flops // matmul.trip_count for matmul in matmuls for _ in range(matmul.trip_count))


def _without_consequences(findings: Sequence[Finding]) -> Iterator[Finding]:
    """What is computed again since it is not saved is no mistake of its own, and asks no question of its own."""
    missing = False
    for finding in findings:
        missing = missing or finding.kind in ("not saved", "wrong memory")
        if missing and finding.kind == "recomputes":
            finding = dataclasses.replace(finding, next="Does this follow from what is not saved?")
        yield finding
