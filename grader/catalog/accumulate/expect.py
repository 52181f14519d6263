"""What is expected of an answer; only the judge reads this."""

import operator

import jax

from grader.catalog.accumulate.task import WIDE, most_activations
from grader.exercises.case_functions import signed_values
from grader.exercises.feedback import read_feedback
from grader.exercises.peaks import InPieces, PeakAtMost
from grader.exercises.requirements import MatmulsAtMost, Requirement

feedback = read_feedback(__file__)
mistake = feedback.mistake


# Matrices whose matmuls leave the linear range of tanh.
sample_input = signed_values(0.3, 1)


def _split_batch(batch, k):
    each = jax.tree.map(lambda array: array.reshape(k, -1, *array.shape[1:]), batch)
    return [jax.tree.map(operator.itemgetter(place), each) for place in range(k)]


def _results_of_microbatches(loss, params, batch, k):
    """Return the sum of losses, the sum of weights, and the gradient of the sum of losses for each microbatch."""
    both = jax.value_and_grad(loss, has_aux=True)
    found = [both(params, rows) for rows in _split_batch(batch, k)]
    return [(total, weight, gradient) for (total, weight), gradient in found]


def _sum_trees(trees):
    return jax.tree.map(lambda *leaves: sum(leaves), *trees)


def _scale_tree(tree, factor):
    return jax.tree.map(lambda leaf: leaf * factor, tree)


def _correct_answer(loss, params, batch, k):
    total, weight, gradient = _sum_trees(_results_of_microbatches(loss, params, batch, k))
    return total / weight, _scale_tree(gradient, 1 / weight)


def _divided_by(number):
    def of(loss, params, batch, k):
        total, _, gradient = _sum_trees(_results_of_microbatches(loss, params, batch, k))
        return total / number(batch, k), _scale_tree(gradient, 1 / number(batch, k))

    return of


def _mean_of_means(loss, params, batch, k):
    found = [
        (total / weight, _scale_tree(gradient, 1 / weight))
        for total, weight, gradient in _results_of_microbatches(loss, params, batch, k)
    ]
    value, gradient = _sum_trees(found)
    return value / k, _scale_tree(gradient, 1 / k)


def _of_one(place):
    def of(loss, params, batch, k):
        total, weight, gradient = _results_of_microbatches(loss, params, batch, k)[place]
        return total / weight, _scale_tree(gradient, 1 / weight)

    return of


def _value_right(of):
    return lambda *arguments: (_correct_answer(*arguments)[0], of(*arguments)[1])


mistakes = (
    mistake("mean_of_means", _mean_of_means),
    mistake("gradient_of_mean_of_means", _value_right(_mean_of_means)),
    mistake("sum_of_losses", _divided_by(lambda batch, k: 1)),
    mistake("gradient_of_sum_of_losses", _value_right(_divided_by(lambda batch, k: 1))),
    mistake("sum_divided_by_k", _divided_by(lambda batch, k: k)),
    mistake("gradient_of_sum_divided_by_k", _value_right(_divided_by(lambda batch, k: k))),
    mistake("sum_divided_by_rows", _divided_by(lambda batch, k: len(jax.tree.leaves(batch)[0]))),
    mistake(
        "every_kth_row",
        lambda loss, params, batch, k: _correct_answer(
            loss,
            params,
            jax.tree.map(lambda a: a.reshape(-1, k, *a.shape[1:]).swapaxes(0, 1).reshape(a.shape), batch),
            k,
        ),
    ),
    mistake("last_microbatch_alone", _of_one(-1)),
    mistake("gradient_of_last_microbatch_alone", _value_right(_of_one(-1))),
    mistake("first_microbatch_alone", _of_one(0)),
    mistake(
        "without_last_microbatch",
        lambda loss, params, batch, k: _correct_answer(
            loss, params, jax.tree.map(lambda array: array[: max(1, k - 1) * len(array) // k], batch), max(1, k - 1)
        ),
    ),
)


def requirements(case):
    asked: list[Requirement] = [
        MatmulsAtMost(1, too_many="How many times does your answer run each microbatch's forward pass, and why?")
    ]
    rows, k = case.structure["r"], case.structure["k"]
    inner, width = case.arguments[0].shape
    if k > 1:
        wide = width == WIDE
        most = most_activations(rows, inner)
        if not wide:  # next to few columns, the batch and the gradients are large
            most = round(12 + 5 * inner / rows) * (1 if case.structure["dtype"] == "float32" else 2)
        asked.append(
            PeakAtMost(
                most,
                compiled=wide,
                trip_count=k,
                too_high="When does the first microbatch's backward pass run: before the second microbatch's forward "
                "pass, or after the last microbatch's forward pass?",
                unit="one microbatch's activations",
            )
        )
    pieces = InPieces(
        rows,
        of=rows * k,
        pieces="microbatches",
        too_large="How many rows does your answer pass to loss at once? Is that one microbatch for every k and dtype?",
    )
    return [asked, [pieces]]
