"""Identify each residual: as an argument, a constant, or a value of the reference.

An argument is identified by its position in the forward program, and a residual that depends on no argument is a
constant. All other residuals are identified by their values. A residual is a value of the reference if two conditions
hold: it has that value's elements up to rounding, in any shape and order of dimensions, and the backward pass returns
the same gradients when the reference's array replaces the residual. The second condition detects data that is hidden in
a residual, in low-order bits or signs of zeros: the reference's array lacks them, so the gradients change.

If rounding may have moved a value beyond its dtype's tolerance, a second run in float64 (the shadow) decides.
"""

import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # scipy.optimize is imported at its first use

from grader.exercises.observation import ResidualKind
from grader.judging.answer_run import AnswerRun, CaseRun
from grader.judging.comparison import OF_SHADOW, ROUNDING, as_float, close, is_as_sensitive, tolerance
from grader.stablehlo.execution import Arrays

# Values with more dimensions are not tried in every order of dimensions; dimensions of size 1 do not count.
_MAX_DIMENSIONS = 5


@dataclass(frozen=True)
class Identity:
    """The identity of a residual.

    Attributes:
      kind: whether it is an argument, a constant or computed from arguments.
      name: the name of the argument or of the reference's value that it equals; None if it equals neither.
      array: the reference's value, in the residual's shape, order of dimensions and dtype; None if it equals no such
        value.
      hides: whether the residual contains further data that the backward pass uses.
    """

    kind: ResidualKind
    name: str | None
    array: np.ndarray | None = None
    hides: bool = False


def identities(run: AnswerRun, asked: Sequence[Collection[str]]) -> list[list[Identity]]:
    """Identify each residual of each case.

    Args:
      run: a run of an answer whose gradients are right.
      asked: for each case, the names of the reference's values that its requirements mention. If a value has several
        names, these names are preferred, and among them the name of a value with the residual's shape.
    """
    found = _mark_hidden_data(run, _identify_by_value(run, asked))
    if any(identity.name is None or identity.hides for own in found for identity in own):
        _recheck_in_float64(run, asked, found)
    return found


def _recheck_in_float64(run: AnswerRun, asked: Sequence[Collection[str]], found: list[list[Identity]]) -> None:
    """Correct the identities of residuals that rounding may have hidden, with a run in float64."""
    perhaps = _identify_by_value(run, asked, times=ROUNDING)
    replaced = _replaceable_places(run, perhaps)
    gross = (
        _wrong_cases(run, run.gradients_from(_with_reference_arrays(run, perhaps, replaced)), ROUNDING)
        if replaced
        else []
    )
    doubtful = [
        (index, place)
        for index, own in enumerate(found)
        for place, identity in enumerate(own)
        if (identity.name is None or identity.hides) and perhaps[index][place].name and index not in gross
    ]
    shadow = run.shadow if doubtful else None
    if shadow is None or _wrong_cases(shadow, [case_run.gradients for case_run in shadow.cases]):
        return
    clear = identities(shadow, asked)
    for index, place in doubtful:
        # The closest value may be another one: the sine of a small number rounds to nearly that number.
        case_run, seen = run.cases[index], clear[index][place]
        of_that_name = [each for each in _named_values(case_run, asked[index]) if each.name == seen.name]
        identity = _closest_value(case_run.residuals[place], of_that_name, ROUNDING)
        if identity.name and not seen.hides:
            found[index][place] = identity


def _identify_by_value(run: AnswerRun, asked: Sequence[Collection[str]], times: float = 1) -> list[list[Identity]]:
    """Identify residuals by their values alone, within `times` the tolerance."""
    of_arguments = run.forward.dependent_on(v for case_run in run.cases for v in case_run.layout.arguments)
    return [
        _identify_in_case(case_run, own, of_arguments, times) for case_run, own in zip(run.cases, asked, strict=True)
    ]


@dataclass(frozen=True)
class _Named:
    """A value of the reference in float64.

    Attributes:
      shape: its shape.
      tolerance: its accuracy, relative to its largest element.
      extremes: its smallest and largest element, which distinguish it from most other arrays.
    """

    name: str
    value: np.ndarray
    shape: tuple[int, ...]
    tolerance: float
    extremes: tuple[float, float]


def _named_values(case_run: CaseRun, asked: Collection[str]) -> list[_Named]:
    """Return the reference's values, those that the requirements mention first, and copies of the arguments."""
    values = _reference_values(case_run)
    accuracy = {name: tolerance(value.dtype) for name, value in values.items()}
    if case_run.shadow_of is not None:
        accuracy = {
            name: OF_SHADOW * tolerance(value.dtype) for name, value in _reference_values(case_run.shadow_of).items()
        }
    return [
        _Named(name, as_float(values[name]), values[name].shape, accuracy[name], _extreme_values(values[name]))
        for name in dict.fromkeys([*(name for name in case_run.named if name in asked), *values])
    ]


def _reference_values(case_run: CaseRun) -> dict[str, np.ndarray]:
    """Return the reference's values by name, and copies of the arguments."""
    copies = {f"a copy of {name}": array for name, array in zip(case_run.argument_names, case_run.inputs, strict=True)}
    return case_run.named | copies


def _identify_in_case(
    case_run: CaseRun, asked: Collection[str], of_arguments: Collection[int], times: float
) -> list[Identity]:
    names, layout, named = case_run.argument_names, case_run.layout, _named_values(case_run, asked)
    found = []
    for value, array in zip(layout.residuals, case_run.residuals, strict=True):
        if value in layout.arguments:
            found.append(Identity(ResidualKind.ARGUMENT, names[layout.arguments.index(value)]))
        elif value not in of_arguments:
            found.append(Identity(ResidualKind.CONSTANT, "a constant"))
        else:
            ordered = sorted(named, key=lambda each: (each.name not in asked, each.shape != array.shape))
            found.append(_closest_value(array, ordered, times))
    return _separate_equal_values(case_run, found, [each for each in named if each.name in asked], times)


def _separate_equal_values(
    case_run: CaseRun, found: list[Identity], asked: Sequence[_Named], times: float
) -> list[Identity]:
    """Return the identities, with each required value matched to a different residual if the tolerance permits.

    Two different values of the reference with few elements can agree up to rounding by chance, for example the cosines
    of two numbers in float16. Then the closest value may be the wrong one: two residuals would get the same name, and a
    saved value would seem to be missing.
    """
    claimed = {identity.name for identity in found}
    computed = [place for place, identity in enumerate(found) if identity.kind is ResidualKind.COMPUTED]
    if len(computed) < 2 or all(each.name in claimed for each in asked):
        return found
    candidates = {
        (row, column): _closest_value(case_run.residuals[place], [each], times)
        for row, place in enumerate(computed)
        for column, each in enumerate(asked)
    }
    cost = np.full((len(computed), len(asked)), len(computed) + 1.0)  # costs more than renaming every residual
    for (row, column), identity in candidates.items():
        if identity.name:
            cost[row, column] = identity.name != found[computed[row]].name
    for row, column in zip(*scipy.optimize.linear_sum_assignment(cost), strict=True):
        if cost[row, column] == 1:
            found[computed[row]] = candidates[row, column]
    return found


def _closest_value(array: np.ndarray, named: Sequence[_Named], times: float) -> Identity:
    """Return the closest value among those that agree with a computed array up to rounding."""
    best, least = Identity(ResidualKind.COMPUTED, None), np.inf
    extremes, accuracy, wide = _extreme_values(array), tolerance(array.dtype), as_float(array)
    is_rounded = accuracy > 0 or array.dtype == np.float64  # only residuals of shadows are float64
    for each in named:
        if each.value.size != array.size:
            continue
        # The tolerance of the less accurate dtype. Values without rounding must be equal.
        relative = times * max(accuracy, each.tolerance) if is_rounded else 0.0
        allowed = relative * max(map(abs, each.extremes))
        if any(abs(one - other) > allowed for one, other in zip(extremes, each.extremes, strict=True)):
            continue
        for arranged in arrangements(each.value, array.shape):
            error = abs(wide - arranged).max(initial=0.0)
            if error <= allowed and error < least:
                with np.errstate(all="ignore"):
                    best = Identity(ResidualKind.COMPUTED, each.name, arranged.astype(array.dtype))
                least = error
            if least == 0:
                return best
    return best


def arrangements(value: np.ndarray, shape: Sequence[int]) -> Iterator[np.ndarray]:
    """Yield a value reshaped to a shape: with its elements in order, and with its dimensions permuted in every way,
    either before or after the reshape."""
    yield value.reshape(shape)
    squeezed, sizes = value.squeeze(), [size for size in shape if size != 1]
    if squeezed.ndim <= _MAX_DIMENSIONS:
        for axes in itertools.permutations(range(squeezed.ndim)):
            yield squeezed.transpose(axes).reshape(shape)
    if len(sizes) <= _MAX_DIMENSIONS:
        for axes in itertools.permutations(range(len(sizes))):
            yield squeezed.reshape([sizes[axis] for axis in axes]).transpose(np.argsort(axes)).reshape(shape)


def _mark_hidden_data(run: AnswerRun, found: list[list[Identity]]) -> list[list[Identity]]:
    """Return the identities, with `hides` set for residuals that contain further data that the backward pass uses."""
    places = _replaceable_places(run, found)
    if not places:
        return found
    wrong = _wrong_cases(run, run.gradients_from(_with_reference_arrays(run, found, places)))
    # In other cases, the gradients of the answer itself have the same rounding error.
    for index in places.keys() & wrong:
        # Replacing one residual at a time shows which one hides data, unless several hide it together.
        alone = [
            place
            for place in places[index]
            if index in _wrong_cases(run, run.gradients_from(_with_reference_arrays(run, found, {index: [place]})))
        ]
        for place in alone or places[index]:
            found[index][place] = dataclasses.replace(found[index][place], hides=True)
    return found


def _replaceable_places(run: AnswerRun, found: list[list[Identity]]) -> dict[int, list[int]]:
    """Return for each case the positions of residuals that equal a value of the reference, but not bit for bit."""
    places = {}
    for index, (case_run, own) in enumerate(zip(run.cases, found, strict=True)):
        named = ((place, array, own[place].array) for place, array in enumerate(case_run.residuals))
        if differing := [
            place for place, array, other in named if other is not None and other.tobytes() != array.tobytes()
        ]:
            places[index] = differing
    return places


def _with_reference_arrays(run: AnswerRun, found: list[list[Identity]], places: Mapping[int, Sequence[int]]) -> Arrays:
    """Return the residuals, with those at these positions replaced by the reference's arrays."""
    return [
        [
            array if identity.array is None or place not in places.get(index, ()) else identity.array
            for place, (array, identity) in enumerate(zip(case_run.residuals, found[index], strict=True))
        ]
        for index, case_run in enumerate(run.cases)
    ]


def _wrong_cases(run: AnswerRun, gradients: Arrays, times: float = 1) -> list[int]:
    """Return the cases in which gradients are wrong; with larger tolerances, only those that rounding does not
    explain."""

    def agrees(index: int, place: int, got: np.ndarray) -> bool:
        case_run = run.cases[index]
        rounded = case_run.shadow_of.wanted_gradients[place] if case_run.shadow_of else None
        if close(got, case_run.wanted_gradients[place], times, rounded):
            return True
        return times > 1 and is_as_sensitive(run, index, got, lambda case_run: case_run.wanted_gradients[place])

    return [
        index
        for index, own in enumerate(gradients)
        if not all(agrees(index, place, got) for place, got in enumerate(own))
    ]


def _extreme_values(array: np.ndarray) -> tuple[float, float]:
    values = as_float(array)
    if not values.size or values.dtype.kind == "c":  # complex numbers are not ordered
        return 0.0, float(abs(values).max(initial=0.0))
    return float(values.min()), float(values.max())
