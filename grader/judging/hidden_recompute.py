"""What the backward pass computes again, though it does not look like it.

A contraction that does not depend on the cotangent is computed again, or was not needed. That is in the program's text;
but `x + 0 * cotangent` depends on the cotangent, and some ways to a product's sum multiply no two arrays. So the
values count too: whatever the backward pass makes that is a product of the forward pass, be it by way of whatever
operations, has been computed again, unless it is only handed on from a value that is that product already.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from grader.judging.answer_run import AnswerRun
from grader.stablehlo.program import StableHloProgram
from grader.stablehlo.value_fingerprints import same, value_fingerprint

_MIN_SUMMANDS = 4  # fewer may be how a value is got back from another that was saved, such as y from y + b


def hidden_recompute_flops(trial: AnswerRun, index: int) -> Iterator[int]:
    """FLOPs of each matmul that a case's backward pass computes again, but for those that do not depend on the
    cotangent, which are seen in the program's text."""
    backward, tried = trial.backward, trial.cases[index]
    needed, of_cotangents = backward.needed_for(tried.layout.gradients), backward.dependent_on(tried.layout.cotangents)
    matmuls = [matmul for matmul in backward.matmuls if matmul.value in needed]
    counted = {matmul.value for matmul in matmuls if matmul.value not in of_cotangents}
    products = trial.products()[index]
    rows = trial.value_fingerprints(tuple(sorted({int(size) for own in trial.products() for size in own[:, 1]})))
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
    """What values are computed from, no further back than to what is known; and whether they are among that."""
    behind: set[int] = set()
    circular, todo = False, [source for value in values for source in program.sources[value]]
    while todo:
        value = todo.pop()
        circular = circular or value in values
        if value not in behind and value not in known:
            behind.add(value)
            todo += program.sources[value]
    return behind, circular
