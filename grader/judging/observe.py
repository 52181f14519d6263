"""What each case of a trial shows of saving and recomputing."""

import functools
from collections.abc import Sequence

import numpy as np

from grader.exercises.observation import CaseObservation, MatchedResidual, ResidualKind
from grader.judging.answer_run import AnswerRun, CaseRun
from grader.judging.compare import tensor_type_of
from grader.judging.hidden_recompute import hidden_recompute_flops
from grader.judging.identity import Identity, identities
from grader.judging.traced_reference import flops_of_each
from rematscope.extend import type_text


def observe_cases(trial: AnswerRun) -> tuple[CaseObservation, ...]:
    """What each case shows, in the cases' order; the exercise's requirements are about that.

    Args:
      trial: a run of an answer whose values and gradients are right.
    """
    asked = [_required_names(tried, trial) for tried in trial.cases]
    found = identities(trial, asked)
    return tuple(_observe_case(index, trial, asked[index], found[index]) for index in range(len(trial.cases)))


def _required_names(tried: CaseRun, trial: AnswerRun) -> set[str]:
    """The names of the reference's values that a case's requirements speak of."""
    groups = trial.expect.requirements(tried.case)
    return {name for group in groups for requirement in group for name in requirement.names}


def _observe_case(index: int, trial: AnswerRun, asked: set[str], found: Sequence[Identity]) -> CaseObservation:
    tried, forward, backward = trial.cases[index], trial.forward, trial.backward
    layout = tried.layout
    needed_forward = forward.needed_for([*layout.outputs, *layout.residuals])
    needed_backward = backward.needed_for(layout.gradients)
    of_cotangents = backward.dependent_on(layout.cotangents)
    matmuls = [matmul for matmul in backward.matmuls if matmul.value in needed_backward]
    of_forward = [matmul for matmul in forward.matmuls if matmul.value in needed_forward]
    barriers = [barrier for barrier in backward.barriers if not needed_backward.isdisjoint(barrier.values)]
    held = {value for barrier in barriers for value in barrier.values}
    wanted = {name: array for name, array in tried.named.items() if name in asked}
    return CaseObservation(
        case=tried.case.name,
        arguments=tried.argument_names,
        residuals=tuple(
            _match_residual(_residual_name(identity), identity.kind, array, memory, source)
            for identity, array, memory, source in zip(
                found, tried.residuals, layout.residual_memory, tried.sources, strict=True
            )
        ),
        wanted={name: _match_residual(name, ResidualKind.COMPUTED, array) for name, array in wanted.items()},
        recomputed=tuple(flops_of_each(matmul for matmul in matmuls if matmul.value not in of_cotangents)),
        hidden_recompute_flops=functools.cache(lambda: tuple(hidden_recompute_flops(trial, index))),
        matmul_flops=sum(matmul.flops for matmul in (*of_forward, *matmuls)),
        reference_flops=tried.wanted_flops,
        forward_flops=tried.forward_flops,
        largest_matmul=max(flops_of_each((*of_forward, *matmuls)), default=0),
        negligible=tried.negligible,
        barriers=len(barriers),
        held=tuple(
            identity.name
            for identity, value in zip(found, layout.taken_residuals, strict=True)
            if identity.kind is ResidualKind.ARGUMENT and identity.name and value in held
        ),
        input_bytes=sum(array.nbytes for array in tried.inputs),
        turns=min((m.trip_count for m in (*of_forward, *matmuls)), default=0),
        peak=functools.cache(lambda compiled: trial.peak(index, compiled)),
    )


def _residual_name(identity: Identity) -> str | None:
    return f"{identity.name} with other data hidden in its low-order bits" if identity.hides else identity.name


def _match_residual(
    name: str | None, kind: ResidualKind, array: np.ndarray, memory: str = "device", source: str | None = None
) -> MatchedResidual:
    return MatchedResidual(name, kind, type_text(tensor_type_of(array)), array.nbytes, memory, source)
