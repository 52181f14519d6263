"""Run an answer's two programs and the reference on the same random inputs."""

import copy
import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from grader.exercises.spec import Case, Expect, Task
from grader.judging.reference import argument_names, traced_reference
from grader.stablehlo.execution import Arrays, Execution, Function, split
from grader.stablehlo.float64 import widened_array
from grader.stablehlo.program import StableHloProgram
from grader.stablehlo.types import ProgramError, TensorType
from grader.tracing.evidence import Evidence


@dataclass(frozen=True)
class CaseLayout:
    """One case's values, by their value numbers in the two programs, each group in the order in which it is passed.

    A value that is handed on unchanged keeps its number: a residual that is an argument has the argument's.

    Attributes:
      arguments: the forward program's inputs.
      outputs: those of the forward program's outputs that the answer returns.
      output_types: their shapes and dtypes.
      residuals: those that the backward program takes.
      residual_memory: where each residual lies, `"device"` or for instance `"pinned_host"`.
      undifferentiated: those that the answer returns where nobody differentiates it; as many, or none.
      taken_residuals: the same residuals among the backward program's inputs.
      cotangents: the backward program's other inputs, one for each output.
      gradients: the backward program's outputs, one for each argument.
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
    """Return how many arrays forward returns, case by case: the outputs, the residuals, and the outputs where nobody
    differentiates the answer."""
    return [
        size for traced in evidence.cases for size in (traced.outputs, len(traced.sources), traced.undifferentiated)
    ]


def lay_out(
    evidence: Evidence, cases: Sequence[Case], forward: StableHloProgram, backward: StableHloProgram
) -> tuple[CaseLayout, ...]:
    """Find each case's values in the two programs.

    Args:
      evidence: what says how many outputs and residuals each case has.
      cases: what the answer was to be captured in.
      forward: its forward program.
      backward: its backward program.

    Raises:
      ProgramError: the programs take and return something else than these cases do, or one case's values take part in
        another one's.
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


_UNFIT = "its two programs do not fit this exercise's cases."


def _refuse_mixed(layout: CaseLayout, forward: StableHloProgram, backward: StableHloProgram) -> None:
    # What another case keeps depends on no argument of this one: it would pass for a constant here.
    before = forward.needed_for([*layout.outputs, *layout.residuals, *layout.undifferentiated]).intersection(
        forward.inputs
    )
    after = backward.needed_for(layout.gradients).intersection(backward.inputs)
    if not (before.issubset(layout.arguments) and after.issubset((*layout.taken_residuals, *layout.cotangents))):
        raise ProgramError("its two programs mix this exercise's cases, of which each is a call by itself.")


class TwoPrograms(Protocol):
    """An answer's two programs, ready to run: an `Execution` in this process, or one in a process that may be lost.

    `grader.stablehlo.execution.Execution` says what each of these takes and returns.
    """

    forward: StableHloProgram
    backward: StableHloProgram

    @property
    def shadow(self) -> "TwoPrograms": ...

    def run(
        self, inputs: Arrays, cotangents: Arrays, reference: Function
    ) -> tuple[Arrays, Arrays, Arrays, Arrays, Arrays, Any]: ...

    def gradients(self, residuals: Arrays, cotangents: Arrays) -> Sequence[np.ndarray]: ...

    def value_fingerprints(self, residuals: Arrays, cotangents: Arrays, sizes: Sequence[int]) -> np.ndarray: ...

    def peak(self, inputs: Arrays, cotangents: Arrays, index: int, compiled: bool) -> int: ...


# In an array's last place, relative to a number.
HALF_A_UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}

Execute = Callable[..., TwoPrograms]  # takes what `Execution` takes


@dataclass(frozen=True)
class CaseRun:
    """One case: what the answer's programs returned, and what the reference did on the same inputs.

    Attributes:
      case: the case.
      argument_names: the names of the reference's arguments.
      layout: where the case's values lie in the two programs.
      structure: the structure of what the answer returns, as text, `"*"` for a single array.
      sources: for each residual the learner's line that made it, or None. Untrusted.
      inputs: an array for each argument.
      cotangents: an array for each output.
      outputs: what the answer returned, one array for each leaf of its structure.
      undifferentiated: the same where nobody differentiates it; none in cases where that can be nothing else.
      residuals: what its forward pass handed to its backward pass.
      gradients: what its backward pass returned, one array for each argument, of the argument's shape and dtype.
      wanted_output: what the reference returned.
      wanted_gradients: its gradients for the same cotangent.
      named: the reference's values that findings have names for; the result may be among them.
      wanted_flops: FLOPs of each single matmul of the reference's two passes, which keep everything.
      forward_flops: those of its forward pass alone.
      negligible: FLOPs of its smallest matmul.
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


class AnswerRun:
    """A run of an answer's programs, and of the reference on the same random inputs.

    Attributes:
      task: the exercise's `task` module.
      expect: its `expect` module.
      cases: what happened, case by case.
      forward: the answer's forward program, its matmuls as often as they ran.
      backward: the answer's backward program, likewise.
      trip_count: the sum of the trip counts of the dynamic loops of both programs, in all cases.
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
          task: the exercise's `task` module.
          expect: its `expect` module; its `sample_input` makes the inputs.
          seed: seeds the inputs and the cotangents.
          execute: returns an object that runs the answer's programs.

        Raises:
          ProgramError: the evidence cannot be judged.
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
        self._run(self._reference.function)

    def _run(self, reference: Function) -> None:
        outputs, undifferentiated, residuals, gradients, trip_counts, wanted = self._programs.run(
            self._inputs, self._cotangents, reference
        )
        # Python's integers: FLOPs of a long loop would not fit into int32.
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
            own._run(self._reference.function.shadow)
        except ProgramError:
            return None
        return own

    @functools.cached_property
    def perturbed(self) -> Sequence[CaseRun]:
        """The cases with the shadow's wanted results for inputs that differ by half a unit in the last place of each
        element."""
        moved = [
            [_perturb_last_place(np.random.default_rng(self._seed), array) for array in own] for own in self._inputs
        ]
        wanted = self._reference.function.shadow(moved, _widen_all(self._cotangents))
        return [
            dataclasses.replace(case, wanted_output=output, wanted_gradients=gradients, named=named)
            for case, (output, gradients, named) in zip(self.cases, wanted, strict=True)
        ]

    def gradients_from(self, residuals: Arrays) -> Arrays:
        """Run the backward program on other residuals, those of all cases, and return the gradients of all cases."""
        return split(self._programs.gradients(residuals, self._cotangents), list(map(len, self._inputs)))

    @functools.cached_property
    def products(self) -> Sequence[np.ndarray]:
        """Fingerprints of the matmuls of the reference's forward pass, case by case, each followed by its FLOPs."""
        return self._reference.products(self._inputs, self._cotangents)

    @functools.cached_property
    def fingerprints_like_products(self) -> np.ndarray:
        """Fingerprints of the backward program's intermediate arrays that are as large as one of `products`."""
        sizes = sorted({int(size) for own in self.products for size in own[:, 1]})
        residuals = [case.residuals for case in self.cases]
        return self._programs.value_fingerprints(residuals, self._cotangents, sizes)

    def peak(self, index: int, compiled: bool) -> int:
        """Return the peak memory in bytes of both passes of a case, besides arguments and results; see
        `Execution.peak`."""
        return self._programs.peak(self._inputs, self._cotangents, index, compiled)


def _perturb_last_place(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    wide = widened_array(array)
    half = HALF_A_UNIT.get(str(array.dtype), 0.0)
    return np.asarray(wide * (1 + half * rng.choice([-1, 1], size=array.shape)), wide.dtype)


def _widen_all(arrays: Arrays) -> Arrays:
    return [[widened_array(array) for array in own] for own in arrays]


def _draw_cotangent(rng: np.random.Generator, kind: TensorType, sign: int) -> np.ndarray:
    # Powers of two, so that they round nothing, but not 1: a gradient that ignores its cotangent is wrong. Nor a half:
    # with that the derivative of z * z is z, which would look like z computed again. Of one sign all together, the
    # other one in the next case: what several of them add up to would cancel otherwise, and be rounding and nothing
    # else where it is a single number.
    return np.asarray(sign * rng.choice([0.25, 2, 4], size=kind.shape), kind.dtype)
