"""Observe what each case saves and recomputes.

A contraction of the backward pass that does not depend on the cotangent is recomputed or unnecessary, which the
program's text shows. But the text is not enough: `x + 0 * cotangent` depends on the cotangent, and a matmul can be
written without multiplying two arrays. So values are compared too: a value of the backward pass that equals a matmul of
the forward pass is recomputed, whatever operations compute it, unless it is passed through from a value that already
equals this matmul.
"""

import functools
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from grader.exercises.observation import CaseObservation, Exchange, MatchedResidual, ResidualKind, WholeArray
from grader.judging.answer_run import AnswerRun, CaseRun
from grader.judging.comparison import tensor_type_of
from grader.judging.identity import Identity, identities
from grader.judging.reference import flops_of_each
from grader.stablehlo.program import StableHloProgram
from grader.stablehlo.value_fingerprints import same, value_fingerprint
from rematscope.extend import link_bytes, type_text

_MIN_SUMMANDS = 4  # fewer summands may only restore a value from a saved one, such as y from y + b


def hidden_recompute_flops(run: AnswerRun, index: int) -> Iterator[int]:
    """Return the FLOPs of each matmul that the backward pass of a case recomputes with operations that use cotangents.

    Matmuls that do not depend on a cotangent are left out, because the program's text shows them.
    """
    backward, case_run = run.backward, run.cases[index]
    needed, of_cotangents = (
        backward.needed_for(case_run.layout.gradients),
        backward.dependent_on(case_run.layout.cotangents),
    )
    matmuls = {matmul.value for matmul in backward.matmuls if matmul.value in needed}
    counted = matmuls - of_cotangents
    products = run.products[index]
    alike = same(run.fingerprints_like_products, products[:, :-1])
    value_at = {place: value for value, place in backward.places if value in needed}
    made: dict[int, Counter[int]] = {}  # value → the matmuls that it equals, each with the number of runs that show it
    for row in alike.any(1).nonzero()[0]:
        if (value := value_at.get(int(run.fingerprints_like_products[row, 0]))) is not None:
            made.setdefault(value, Counter())[int(alike[row].argmax())] += 1
    if not made:
        return
    known = {value: set(times) for value, times in made.items()}  # value → the matmuls that it equals; also residuals
    for value, array in zip(case_run.layout.taken_residuals, case_run.residuals, strict=True):
        if seen := value_fingerprint(array):
            known.setdefault(value, set()).update(map(int, same(np.array(seen), products[:, :-1]).nonzero()[1]))
    for value, times in made.items():
        behind, circular = _dependencies_of(value, known, backward)
        for product, count in times.items():
            if any(product in known.get(source, ()) for source in backward.sources[value]):
                continue  # passed through
            flops, size = int(products[product, -1]), int(products[product, 1])
            contractions = {value} if value in matmuls else matmuls & behind
            summands = flops // (2 * size)
            summed = circular or (summands >= _MIN_SUMMANDS and len(behind) >= 2 * summands)
            if (contractions or summed) and not contractions & counted:
                yield from [flops] * count


def _dependencies_of(value: int, known: Collection[int], program: StableHloProgram) -> tuple[set[int], bool]:
    """Return the values that a value is computed from, up to known values, and whether it depends on itself."""
    behind: set[int] = set()
    circular, todo = False, [*program.sources[value]]
    while todo:
        source = todo.pop()
        circular = circular or source == value
        if source not in behind and source not in known:
            behind.add(source)
            todo += program.sources[source]
    return behind, circular


def observe_cases(run: AnswerRun) -> tuple[CaseObservation, ...]:
    """Return the observations of each case, in order, for the exercise's requirements.

    Args:
      run: a run of an answer whose values and gradients are right.
    """
    asked = [_required_names(case_run, run) for case_run in run.cases]
    found = identities(run, asked)
    return tuple(_observe_case(index, run, asked[index], found[index]) for index in range(len(run.cases)))


def _required_names(case_run: CaseRun, run: AnswerRun) -> set[str]:
    """Return the names of the reference's values that a case's requirements mention."""
    groups = run.expect.requirements(case_run.case)
    return {name for group in groups for requirement in group for name in requirement.names}


def _observe_case(index: int, run: AnswerRun, asked: set[str], found: Sequence[Identity]) -> CaseObservation:
    case_run, forward, backward = run.cases[index], run.forward, run.backward
    layout = case_run.layout
    needed_forward = forward.needed_for([*layout.outputs, *layout.residuals])
    needed_backward = backward.needed_for(layout.gradients)
    of_cotangents = backward.dependent_on(layout.cotangents)
    matmuls = [matmul for matmul in backward.matmuls if matmul.value in needed_backward]
    of_forward = [matmul for matmul in forward.matmuls if matmul.value in needed_forward]
    barriers = [barrier for barrier in backward.barriers if not needed_backward.isdisjoint(barrier)]
    wanted = {name: array for name, array in case_run.named.items() if name in asked}
    return CaseObservation(
        case=case_run.case.name,
        arguments=case_run.argument_names,
        residuals=tuple(
            _match_residual(_residual_name(identity), identity.kind, array, memory, source)
            for identity, array, memory, source in zip(
                found, case_run.residuals, layout.residual_memory, case_run.sources, strict=True
            )
        ),
        wanted={name: _match_residual(name, ResidualKind.COMPUTED, array) for name, array in wanted.items()},
        recomputed=tuple(flops_of_each(matmul for matmul in matmuls if matmul.value not in of_cotangents)),
        hidden_recompute_flops=functools.cache(lambda: tuple(hidden_recompute_flops(run, index))),
        matmul_flops=sum(matmul.flops for matmul in (*of_forward, *matmuls)),
        reference_flops=case_run.wanted_flops,
        forward_flops=case_run.forward_flops,
        largest_matmul=max(flops_of_each((*of_forward, *matmuls)), default=0),
        negligible=case_run.negligible,
        barriers=len(barriers),
        input_bytes=sum(array.nbytes for array in case_run.inputs),
        least_trip_count=min((m.trip_count for m in (*of_forward, *matmuls)), default=0),
        peak=functools.cache(lambda compiled: run.peak(index, compiled)),
        exchanges=(*_exchanges_of(forward, needed_forward, False), *_exchanges_of(backward, needed_backward, True)),
        matmuls=len(of_forward) + len(matmuls),
        gathers=(
            *_gathers_of(forward, needed_forward, False),
            *_gathers_of(backward, needed_backward - of_cotangents, True),
        ),
        whole_gradients=tuple(
            name
            for name, gradient in zip(case_run.argument_names, layout.gradients, strict=True)
            if gradient in backward.whole
        ),
    )


def _exchanges_of(program: StableHloProgram, needed: Collection[int], backward: bool) -> Iterator[Exchange]:
    for each in program.collectives:
        if each.value in needed:
            once = link_bytes(each.kind, each.operand_bytes, each.result_bytes, each.devices)
            yield Exchange(each.kind, backward, each.trip_count, each.trip_count * once)


def _gathers_of(program: StableHloProgram, needed: Collection[int], backward: bool) -> Iterator[WholeArray]:
    for each in program.gathers:
        if each.value in needed:
            yield WholeArray(backward, each.trip_count, each.nbytes)


def _residual_name(identity: Identity) -> str | None:
    return f"{identity.name} with other data hidden in its low-order bits" if identity.hides else identity.name


def _match_residual(
    name: str | None, kind: ResidualKind, array: np.ndarray, memory: str = "device", source: str | None = None
) -> MatchedResidual:
    return MatchedResidual(name, kind, type_text(tensor_type_of(array)), array.nbytes, memory, source)
