"""Observe what each case saves and recomputes.

A contraction that does not depend on the cotangent is recomputed, or was not needed. The program's text shows that; but
`x + 0 * cotangent` depends on the cotangent, and a matmul's sum can be spelled without multiplying two arrays. So the
values count too: whatever the backward pass computes that is a matmul of the forward pass, by whatever operations, is
recomputed, unless it is only passed on from a value that is that matmul already.
"""

import functools
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from grader.exercises.observation import CaseObservation, Exchange, MatchedResidual, ResidualKind
from grader.judging.answer_run import AnswerRun, CaseRun
from grader.judging.comparison import tensor_type_of
from grader.judging.identity import Identity, identities
from grader.judging.reference import flops_of_each
from grader.stablehlo.program import StableHloProgram
from grader.stablehlo.value_fingerprints import same, value_fingerprint
from rematscope.extend import link_bytes, type_text

_MIN_SUMMANDS = 4  # fewer may be how a value is got back from another that was saved, such as y from y + b


def hidden_recompute_flops(trial: AnswerRun, index: int) -> Iterator[int]:
    """FLOPs of each matmul that a case's backward pass computes again, but for those that do not depend on the
    cotangent, which are seen in the program's text."""
    backward, tried = trial.backward, trial.cases[index]
    needed, of_cotangents = backward.needed_for(tried.layout.gradients), backward.dependent_on(tried.layout.cotangents)
    matmuls = [matmul for matmul in backward.matmuls if matmul.value in needed]
    counted = {matmul.value for matmul in matmuls if matmul.value not in of_cotangents}
    products = trial.products[index]
    rows = trial.fingerprints_like_products
    alike = same(rows, products[:, :-1])
    made: dict[int, Counter[int]] = {}  # place in the text → products, and how often each is made there
    for row in alike.any(1).nonzero()[0]:
        made.setdefault(int(rows[row, 0]), Counter())[int(alike[row].argmax())] += 1
    if not made:
        return
    # What each value of the program is known to be: residuals, and what is made on the way.
    known = {value: set(made[place]) for value, place in backward.places if place in made and value in needed}
    for value, array in zip(tried.layout.taken_residuals, tried.residuals, strict=True):
        if seen := value_fingerprint(array):
            known.setdefault(value, set()).update(map(int, same(np.array(seen), products[:, :-1]).nonzero()[1]))
    places = dict(backward.places)
    for place, times in made.items():
        values = [value for value in known if places.get(value) == place]
        for product, count in times.items():
            if any(product in known.get(source, ()) for value in values for source in backward.sources[value]):
                continue  # handed on
            flops, size = int(products[product, -1]), int(products[product, 1])
            if own := [matmul for matmul in matmuls if matmul.value in values]:
                again = all(matmul.value not in counted for matmul in own)
            else:
                behind, circular = _dependencies(values, known, backward)
                contractions = [matmul for matmul in matmuls if matmul.value in behind]
                summands = flops // (2 * size)
                summed = circular or (summands >= _MIN_SUMMANDS and len(behind) >= 2 * summands)
                again = bool(contractions or summed) and all(m.value not in counted for m in contractions)
            if again:
                yield from [flops] * count


def _dependencies(values: Sequence[int], known: Collection[int], program: StableHloProgram) -> tuple[set[int], bool]:
    """Return what values are computed from, no further back than to what is known; and whether they are among that."""
    behind: set[int] = set()
    circular, todo = False, [source for value in values for source in program.sources[value]]
    while todo:
        value = todo.pop()
        circular = circular or value in values
        if value not in behind and value not in known:
            behind.add(value)
            todo += program.sources[value]
    return behind, circular


def observe_cases(trial: AnswerRun) -> tuple[CaseObservation, ...]:
    """Return what each case shows, in the cases' order; the exercise's requirements are about that.

    Args:
      trial: a run of an answer whose values and gradients are right.
    """
    asked = [_required_names(tried, trial) for tried in trial.cases]
    found = identities(trial, asked)
    return tuple(_observe_case(index, trial, asked[index], found[index]) for index in range(len(trial.cases)))


def _required_names(tried: CaseRun, trial: AnswerRun) -> set[str]:
    """Return the names of the reference's values that a case's requirements speak of."""
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
    barriers = [barrier for barrier in backward.barriers if not needed_backward.isdisjoint(barrier)]
    held = {value for barrier in barriers for value in barrier}
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
        exchanges=(*_exchanges_of(forward, needed_forward, False), *_exchanges_of(backward, needed_backward, True)),
    )


def _exchanges_of(program: StableHloProgram, needed: Collection[int], backward: bool) -> Iterator[Exchange]:
    for each in program.collectives:
        if each.value in needed:
            once = link_bytes(each.kind, each.operand_bytes, each.result_bytes, each.devices)
            yield Exchange(each.kind, backward, each.trip_count, each.trip_count * once)


def _residual_name(identity: Identity) -> str | None:
    return f"{identity.name} with other data hidden in its low-order bits" if identity.hides else identity.name


def _match_residual(
    name: str | None, kind: ResidualKind, array: np.ndarray, memory: str = "device", source: str | None = None
) -> MatchedResidual:
    return MatchedResidual(name, kind, type_text(tensor_type_of(array)), array.nbytes, memory, source)
