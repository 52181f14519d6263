"""What each case of a trial shows of saving and recomputing."""

import functools

import numpy as np

from grader.exercises.behaviour import Behaviour, MatchedResidual, ResidualKind
from grader.judging.compare import matching_name, tensor_type_of
from grader.judging.traced_reference import flops_of_each
from grader.judging.trial import Trial, TriedCase
from rematscope.ir.program import type_text


def behaviours(trial: Trial) -> tuple[Behaviour, ...]:
    """What each case shows, in the cases' order; the exercise's requirements are about that.

    Args:
      trial: a run of an answer whose values and gradients are right.
    """
    return tuple(_behaviour(index, trial) for index in range(len(trial.cases)))


def _behaviour(index: int, trial: Trial) -> Behaviour:
    tried, forward, backward = trial.cases[index], trial.forward, trial.backward
    layout = tried.layout
    groups = trial.expect.requirements(tried.case)
    asked = {name for group in groups for requirement in group for name in requirement.names}
    wanted = {name: value for name, value in tried.named.items() if name in asked}
    needed_forward = forward.needed_for([*layout.outputs, *layout.residuals])
    needed_backward = backward.needed_for(layout.gradients)
    of_cotangents = backward.dependent_on(layout.cotangents)
    matmuls = [matmul for matmul in backward.matmuls if matmul.value in needed_backward]
    return Behaviour(
        case=tried.case.name,
        arguments=tried.argument_names,
        residuals=_residuals(trial, tried, wanted),
        wanted={name: _matched(name, ResidualKind.COMPUTED, array) for name, array in wanted.items()},
        recomputed=tuple(flops_of_each(matmul for matmul in matmuls if matmul.value not in of_cotangents)),
        matmul_flops=sum(matmul.flops for matmul in forward.matmuls if matmul.value in needed_forward)
        + sum(matmul.flops for matmul in matmuls),
        reference_flops=tried.wanted_flops,
        barriers=sum(not needed_backward.isdisjoint(barrier.values) for barrier in backward.barriers),
        peak=functools.cache(lambda: trial.peak(index) / sum(array.nbytes for array in tried.inputs)),
    )


def _residuals(trial: Trial, tried: TriedCase, wanted: dict[str, np.ndarray]) -> tuple[MatchedResidual, ...]:
    """What crosses in one case, by what it is worth and not by how it came about.

    An argument must be the forward program's own; what depends on none is a constant; all else is known by its value.
    """
    layout, names = tried.layout, tried.argument_names
    others = tried.named | {f"a copy of {name}": array for name, array in zip(names, tried.inputs, strict=True)}
    of_arguments = trial.forward.dependent_on(layout.arguments)
    residuals = []
    for value, array, memory, source in zip(
        layout.residuals, tried.residuals, layout.residual_memory, tried.sources, strict=True
    ):
        name: str | None
        if value in layout.arguments:
            kind, name = ResidualKind.ARGUMENT, names[layout.arguments.index(value)]
        elif value not in of_arguments:
            kind, name = ResidualKind.CONSTANT, "a constant"
        else:
            kind, name = ResidualKind.COMPUTED, matching_name(array, wanted) or matching_name(array, others)
        residuals.append(_matched(name, kind, array, memory, source))
    return tuple(residuals)


def _matched(
    name: str | None, kind: ResidualKind, array: np.ndarray, memory: str = "device", source: str | None = None
) -> MatchedResidual:
    return MatchedResidual(name, kind, type_text(tensor_type_of(array)), array.nbytes, memory, source)
