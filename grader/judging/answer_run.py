"""Run an answer's two programs and the reference on the same random inputs."""

import copy
import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from grader.exercises.spec import Case, Expect, Task
from grader.judging.reference import argument_names, traced_reference
from grader.stablehlo.execution import Arrays, Execution, Function, ResultsAndReference, split
from grader.stablehlo.float64 import widened_array
from grader.stablehlo.program import StableHloProgram
from grader.stablehlo.types import ProgramError, TensorType
from grader.tracing.evidence import Evidence


@dataclass(frozen=True)
class CaseLayout:
    """The value numbers of one case's values in the two programs, each group in the order of the program.

    A value that is passed through unchanged has one number, so a residual that is an argument has the argument's
    number.

    Attributes:
      arguments: the inputs of the forward program.
      outputs: the outputs of the forward program that the answer returns.
      output_types: the shapes and dtypes of `outputs`.
      residuals: the outputs of the forward program that the backward program takes.
      residual_memory: the memory of each residual, such as `"device"` or `"pinned_host"`.
      undifferentiated: the outputs that the answer returns if it is not differentiated; as many as `outputs`, or none.
      taken_residuals: the residuals among the inputs of the backward program.
      cotangents: the other inputs of the backward program, one per output.
      gradients: the outputs of the backward program, one per argument.
    """

    arguments: tuple[int, ...]
    outputs: tuple[int, ...]
    output_types: tuple[TensorType, ...]
    residuals: tuple[int, ...]
    residual_memory: tuple[str, ...]
    undifferentiated: tuple[int, ...]
    taken_residuals: tuple[int, ...]
    cotangents: tuple[int, ...]
    gradients: tuple[int, ...]


def output_sizes(evidence: Evidence) -> list[int]:
    """Return three numbers of arrays per case that the forward program returns.

    They are the numbers of outputs, of residuals, and of outputs of the undifferentiated answer.
    """
    return [
        size for traced in evidence.cases for size in (traced.outputs, len(traced.sources), traced.undifferentiated)
    ]


def lay_out(
    evidence: Evidence, cases: Sequence[Case], forward: StableHloProgram, backward: StableHloProgram
) -> tuple[CaseLayout, ...]:
    """Find each case's values in the two programs.

    Args:
      evidence: the evidence, which has the numbers of outputs and residuals of each case.
      cases: the cases that the answer was traced in.
      forward: the forward program of the answer.
      backward: the backward program of the answer.

    Raises:
      ProgramError: if the inputs and outputs of the programs do not match the cases, or if values of one case depend on
        another case.
    """
    sizes = output_sizes(evidence)
    names = [case.name for case in cases]
    if [traced.case for traced in evidence.cases] != names or len(forward.outputs) != sum(sizes):
        raise ProgramError(_UNFIT)
    outputs, output_types, memory = (
        split(values, sizes) for values in (forward.outputs, forward.output_types, forward.output_memory)
    )
    arguments = [TensorType(a.shape, str(a.dtype)) for case in cases for a in case.arguments]
    # First every case's residuals, then every case's cotangents.
    crossing = [kind for kinds in (*output_types[1::3], *output_types[::3]) for kind in kinds]
    if (
        list(forward.input_types) != arguments
        or list(backward.input_types) != crossing
        or list(backward.output_types) != arguments
        or any(plain not in ([], types) for types, plain in zip(output_types[::3], output_types[2::3], strict=True))
    ):
        raise ProgramError(_UNFIT)
    arities = [len(case.arguments) for case in cases]
    taken = split(backward.inputs, [*sizes[1::3], *sizes[::3]])
    parts = (
        split(forward.inputs, arities), outputs[::3], output_types[::3], outputs[1::3], memory[1::3],
        outputs[2::3], taken[: len(cases)], taken[len(cases) :], split(backward.outputs, arities),
    )  # fmt: skip
    layouts = tuple(CaseLayout(*map(tuple, own)) for own in zip(*parts, strict=True))
    for layout in layouts:
        _refuse_mixed(layout, forward, backward)
    return layouts


_UNFIT = "its two programs do not match this exercise's cases."


def _refuse_mixed(layout: CaseLayout, forward: StableHloProgram, backward: StableHloProgram) -> None:
    # A residual of another case does not depend on the arguments of this case, so it would count as a constant here.
    before = forward.needed_for([*layout.outputs, *layout.residuals, *layout.undifferentiated]).intersection(
        forward.inputs
    )
    after = backward.needed_for(layout.gradients).intersection(backward.inputs)
    if not (before.issubset(layout.arguments) and after.issubset((*layout.taken_residuals, *layout.cotangents))):
        raise ProgramError("its two programs mix the exercise's cases, but each case must be a call of its own.")


class TwoPrograms(Protocol):
    """An answer's two programs, ready to run: an `Execution` in this process or in a separate one.

    `grader.stablehlo.execution.Execution` documents the methods.
    """

    forward: StableHloProgram
    backward: StableHloProgram

    @property
    def shadow(self) -> "TwoPrograms": ...

    def run(self, inputs: Arrays, cotangents: Arrays, reference: Function) -> ResultsAndReference: ...

    def gradients(self, residuals: Arrays, cotangents: Arrays) -> Sequence[np.ndarray]: ...

    def value_fingerprints(self, residuals: Arrays, cotangents: Arrays, sizes: Sequence[int]) -> np.ndarray: ...

    def peak(self, inputs: Arrays, cotangents: Arrays, index: int, compiled: bool) -> int: ...


# Half a unit in the last place, relative to the value.
HALF_A_UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}

# The number of random perturbations of the inputs. A single one may change a result by little by chance.
_PERTURBATIONS = 4

Execute = Callable[..., TwoPrograms]  # takes what `Execution` takes


@dataclass(frozen=True)
class CaseRun:
    """One case: the results of the answer's programs, and those of the reference on the same inputs.

    Attributes:
      case: the case.
      argument_names: the names of the reference's arguments.
      layout: the value numbers of the case in the two programs.
      structure: the pytree structure of the answer's result, as text; `"*"` for a single array.
      sources: for each residual, the learner's line that computed it, or None. Untrusted.
      inputs: one array per argument.
      cotangents: one array per output.
      outputs: the results of the answer, one array per leaf of its structure.
      undifferentiated: the results if the answer is not differentiated; empty if the evidence has none.
      residuals: the values that the answer's forward pass saves for its backward pass.
      gradients: the results of the backward pass, one array per argument, with the argument's shape and dtype.
      wanted_output: the result of the reference.
      wanted_gradients: the gradients of the reference for the same cotangent.
      named: the reference's values that findings refer to by name, possibly including its result.
      wanted_flops: the FLOPs of each matmul in both passes of the reference, which saves everything.
      forward_flops: the FLOPs of each matmul in the forward pass of the reference.
      negligible: the FLOPs of the smallest matmul of the reference.
      shadow_of: the same case in its own dtypes, if this is a case of a shadow.
    """

    case: Case
    argument_names: tuple[str, ...]
    layout: CaseLayout
    structure: str
    sources: tuple[str | None, ...]
    inputs: Sequence[np.ndarray]
    cotangents: Sequence[np.ndarray]
    outputs: Sequence[np.ndarray]
    undifferentiated: Sequence[np.ndarray]
    residuals: Sequence[np.ndarray]
    gradients: Sequence[np.ndarray]
    wanted_output: np.ndarray
    wanted_gradients: Sequence[np.ndarray]
    named: dict[str, np.ndarray]
    wanted_flops: tuple[int, ...]
    forward_flops: tuple[int, ...]
    negligible: int
    shadow_of: "CaseRun | None" = None


class AnswerRun:
    """A run of an answer's programs, and of the reference on the same random inputs.

    Attributes:
      task: the `task` module of the exercise.
      expect: the `expect` module of the exercise.
      cases: the run of each case.
      forward: the answer's forward program, with each matmul counted as often as it ran.
      backward: the answer's backward program, counted in the same way.
      trip_count: the sum of the trip counts of all dynamic loops of both programs, over all cases.
    """

    cases: tuple[CaseRun, ...]
    forward: StableHloProgram
    backward: StableHloProgram
    trip_count: int

    def __init__(
        self,
        evidence: Evidence,
        cases: Sequence[Case],
        task: Task,
        expect: Expect,
        seed: int,
        execute: Execute = Execution,
    ):
        """Run the programs and the reference.

        Args:
          evidence: the answer's evidence for these cases.
          cases: the cases.
          task: the `task` module of the exercise.
          expect: the `expect` module of the exercise; its `sample_input` returns the inputs.
          seed: the seed of the inputs and cotangents.
          execute: returns an object that runs the answer's programs.

        Raises:
          ProgramError: if the evidence cannot be judged.
        """
        self.task, self.expect = task, expect
        self._evidence, self._given_cases, self._seed = evidence, cases, seed
        rng = np.random.default_rng(seed)
        limit = getattr(task, "max_trip_count", None)
        self._programs = execute(evidence.forward, evidence.backward, output_sizes(evidence), limit)
        self._inputs: Arrays = [[expect.sample_input(rng, argument) for argument in case.arguments] for case in cases]
        self._layouts = lay_out(evidence, cases, self._programs.forward, self._programs.backward)
        signs = itertools.cycle(rng.permutation([-1, 1]))
        self._cotangents: Arrays = [
            [_draw_cotangent(rng, kind, sign) for kind in layout.output_types]
            for layout, sign in zip(self._layouts, signs, strict=False)  # as many signs as there are cases
        ]
        self._reference = traced_reference(tuple(cases), expect, tuple(each.output_types for each in self._layouts))
        self._run_reference(self._reference.function)

    def _run_reference(self, reference: Function) -> None:
        outputs, undifferentiated, residuals, gradients, trip_counts, wanted = self._programs.run(
            self._inputs, self._cotangents, reference
        )
        # Python integers, because the FLOPs of a long loop may not fit in int32.
        forward_trips, backward_trips = ([int(count) for count in counts] for counts in trip_counts)
        self.forward = self._programs.forward.counted(forward_trips)
        self.backward = self._programs.backward.counted(backward_trips)
        self.trip_count = sum(forward_trips) + sum(backward_trips)
        self.cases = tuple(
            CaseRun(
                case=case,
                argument_names=argument_names(case, self.expect),
                layout=self._layouts[index],
                structure=self._evidence.cases[index].output,
                sources=self._evidence.cases[index].sources,
                inputs=self._inputs[index],
                cotangents=self._cotangents[index],
                outputs=outputs[index],
                undifferentiated=undifferentiated[index],
                residuals=residuals[index],
                gradients=gradients[index],
                wanted_output=wanted[index][0],
                wanted_gradients=wanted[index][1],
                named=wanted[index][2],
                wanted_flops=self._reference.matmul_flops[index],
                forward_flops=self._reference.forward_flops[index],
                negligible=self._reference.negligible[index],
            )
            for index, case in enumerate(self._given_cases)
        )

    @functools.cached_property
    def shadow(self) -> "AnswerRun | None":
        """The same run in float64 (`grader.stablehlo.float64`); None if that fails, or if this is a shadow."""
        own = copy.copy(self)
        own.shadow = None
        own._inputs, own._cotangents = _widen_all(self._inputs), _widen_all(self._cotangents)
        try:
            own._programs = self._programs.shadow
            own._run_reference(self._reference.function.shadow)
        except ProgramError:
            return None
        own.cases = tuple(
            dataclasses.replace(case, shadow_of=rounded) for case, rounded in zip(own.cases, self.cases, strict=True)
        )
        return own

    @functools.cached_property
    def perturbed(self) -> Sequence[Sequence[CaseRun]]:
        """The cases with the reference's float64 results for perturbed inputs, `_PERTURBATIONS` times.

        Each element of the inputs differs by half a unit in the last place, with a random sign.
        """
        rng = np.random.default_rng(self._seed)

        def perturb() -> Sequence[CaseRun]:
            moved = [[_perturb_last_place(rng, array) for array in own] for own in self._inputs]
            wanted = self._reference.function.shadow(moved, _widen_all(self._cotangents))
            return [
                dataclasses.replace(case, wanted_output=output, wanted_gradients=gradients, named=named)
                for case, (output, gradients, named) in zip(self.cases, wanted, strict=True)
            ]

        return [perturb() for _ in range(_PERTURBATIONS)]

    def gradients_from(self, residuals: Arrays) -> Arrays:
        """Run the backward program on other residuals of all cases, and return the gradients of all cases."""
        return split(self._programs.gradients(residuals, self._cotangents), list(map(len, self._inputs)))

    @functools.cached_property
    def products(self) -> Sequence[np.ndarray]:
        """The fingerprints of the matmuls in the reference's forward pass, by case, each followed by its FLOPs."""
        return self._reference.products(self._inputs, self._cotangents)

    @functools.cached_property
    def fingerprints_like_products(self) -> np.ndarray:
        """The fingerprints of the backward program's intermediate arrays that have the size of one of `products`."""
        sizes = sorted({int(size) for own in self.products for size in own[:, 1]})
        residuals = [case.residuals for case in self.cases]
        return self._programs.value_fingerprints(residuals, self._cotangents, sizes)

    def peak(self, index: int, compiled: bool) -> int:
        """Return the peak memory of both passes of a case in bytes, without arguments and results; see
        `Execution.peak`.
        """
        return self._programs.peak(self._inputs, self._cotangents, index, compiled)


def _perturb_last_place(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    wide = widened_array(array)
    half = HALF_A_UNIT.get(str(array.dtype), 0.0)
    return np.asarray(wide * (1 + half * rng.choice([-1, 1], size=array.shape)), wide.dtype)


def _widen_all(arrays: Arrays) -> Arrays:
    return [[widened_array(array) for array in own] for own in arrays]


def _draw_cotangent(rng: np.random.Generator, kind: TensorType, sign: int) -> np.ndarray:
    # Powers of two, so that multiplying by a cotangent rounds nothing. Not 1, because a gradient that ignores its
    # cotangent is wrong. Not 1/2, because the derivative of z * z is then z, which looks like a recomputed z. All have
    # the same sign, and the other sign in the next case: with mixed signs, sums of cotangents would cancel, and a
    # single sum could be nothing but rounding error.
    return np.asarray(sign * rng.choice([0.25, 2, 4], size=kind.shape), kind.dtype)
