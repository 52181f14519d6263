"""Where each case's values lie in an answer's two programs, and whether its evidence adds up."""

from collections.abc import Sequence
from dataclasses import dataclass

from grader.answers.evidence import Evidence
from grader.exercises.spec import Case
from grader.stablehlo.execution import split
from grader.stablehlo.program import StableHloProgram
from grader.stablehlo.types import ProgramError, TensorType


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
    """How many arrays forward returns, case by case: the outputs, the residuals, and the outputs where nobody
    differentiates the answer."""
    return [
        size for traced in evidence.cases for size in (traced.outputs, len(traced.sources), traced.undifferentiated)
    ]


def lay_out(
    evidence: Evidence, cases: Sequence[Case], forward: StableHloProgram, backward: StableHloProgram
) -> tuple[CaseLayout, ...]:
    """Finds each case's values in the two programs.

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
