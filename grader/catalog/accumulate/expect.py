"""What is expected of an answer; only the judge reads this."""

import operator

import jax

from grader.catalog.accumulate.task import WIDE, most_activations
from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.peaks import InPieces, PeakAtMost
from grader.exercises.requirements import KnownMistake, MatmulsAtMost, Requirement


def sample_input(rng, argument):
    """Return matrices whose matmuls leave the linear range of tanh."""
    size = rng.uniform(0.3, 1, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


def _cut(batch, k):
    each = jax.tree.map(lambda array: array.reshape(k, -1, *array.shape[1:]), batch)
    return [jax.tree.map(operator.itemgetter(place), each) for place in range(k)]


def _each(loss, params, batch, k):
    """Of each microbatch the sum of losses, the sum of weights, and the gradient of the first."""
    both = jax.value_and_grad(loss, has_aux=True)
    found = [both(params, rows) for rows in _cut(batch, k)]
    return [(total, weight, gradient) for (total, weight), gradient in found]


def _sum(trees):
    return jax.tree.map(lambda *leaves: sum(leaves), *trees)


def _scaled(tree, factor):
    return jax.tree.map(lambda leaf: leaf * factor, tree)


def _right(loss, params, batch, k):
    total, weight, gradient = _sum(_each(loss, params, batch, k))
    return total / weight, _scaled(gradient, 1 / weight)


def _divided_by(number):
    def of(loss, params, batch, k):
        total, _, gradient = _sum(_each(loss, params, batch, k))
        return total / number(batch, k), _scaled(gradient, 1 / number(batch, k))

    return of


def _means(loss, params, batch, k):
    found = [
        (total / weight, _scaled(gradient, 1 / weight)) for total, weight, gradient in _each(loss, params, batch, k)
    ]
    value, gradient = _sum(found)
    return value / k, _scaled(gradient, 1 / k)


def _of_one(place):
    def of(loss, params, batch, k):
        total, weight, gradient = _each(loss, params, batch, k)[place]
        return total / weight, _scaled(gradient, 1 / weight)

    return of


def _dealt_out(array, k):
    return array.reshape(-1, k, *array.shape[1:]).swapaxes(0, 1).reshape(array.shape)


def _value_right(of):
    return lambda *arguments: (_right(*arguments)[0], of(*arguments)[1])


_WHICH = "What does each iteration pass on to the next: the sums so far, or only its own values?"
_MEANS = "If one microbatch has twice the weight of another, how much should its mean count? And one of weight 0?"
_MANY = "Which number must both the summed losses and the summed gradients be divided by?"

mistakes = (
    KnownMistake("this is the mean of the microbatches' means", _means, _MEANS),
    KnownMistake(
        "this is the gradient of the mean of the microbatches' means", _value_right(_means), _MEANS, check_gradient=True
    ),
    KnownMistake(
        "this is the sum of all losses, not divided by the sum of the weights", _divided_by(lambda batch, k: 1), _MANY
    ),
    KnownMistake(
        "this is the gradient of the sum of all losses, not divided by the sum of the weights",
        _value_right(_divided_by(lambda batch, k: 1)),
        _MANY,
        check_gradient=True,
    ),
    KnownMistake(
        "this is the sum of all losses divided by k instead of by the sum of the weights",
        _divided_by(lambda batch, k: k),
        _MANY,
    ),
    KnownMistake(
        "this is the gradient of the sum of all losses divided by k instead of by the sum of the weights",
        _value_right(_divided_by(lambda batch, k: k)),
        _MANY,
        check_gradient=True,
    ),
    KnownMistake(
        "this is the sum of all losses divided by the number of rows instead of by the sum of the weights",
        _divided_by(lambda batch, k: len(jax.tree.leaves(batch)[0])),
        _MANY,
    ),
    KnownMistake(
        "this is the value you get if a microbatch takes every k-th row instead of neighboring rows",
        lambda loss, params, batch, k: _right(loss, params, jax.tree.map(lambda array: _dealt_out(array, k), batch), k),
        "Which rows of the batch are in your first microbatch? Print your reshape of `jnp.arange(6)` for `k = 2`.",
    ),
    KnownMistake("this is the value of the last microbatch alone", _of_one(-1), _WHICH),
    KnownMistake(
        "this is the gradient of the last microbatch alone", _value_right(_of_one(-1)), _WHICH, check_gradient=True
    ),
    KnownMistake(
        "this is the value of the first microbatch alone",
        _of_one(0),
        "Which rows of the batch does each iteration of your loop use?",
    ),
    KnownMistake(
        "this is the value without the last microbatch",
        lambda loss, params, batch, k: _right(
            loss, params, jax.tree.map(lambda array: array[: max(1, k - 1) * len(array) // k], batch), max(1, k - 1)
        ),
        "How many iterations does your loop run, and do the sums of the last one reach the result?",
    ),
)

error_questions = (
    (
        r"accumulate returned",
        "The page asks for a pair: the value and the gradients. Which structure, shapes and dtype must the gradients "
        "have?",
    ),
    (
        r"'(tuple|dict)' object has no attribute|list indices|unsupported operand",
        "Is a value on that line a tree (a dict or a tuple of arrays) instead of one array? Which JAX function applies "
        "an operation to every array of a tree?",
    ),
    (
        r"scalar-output|scalar output",
        "loss returns two numbers. Which option of jax.value_and_grad is for functions that return a second value?",
    ),
    (
        r"carry|must be a pair",
        "Which two things does the body of a scan return? Does the carry keep its structure, shapes and dtypes?",
    ),
    (
        r"reshape|leading axis|length|size",
        "Into how many microbatches do you split each array of the batch, and how many rows does each microbatch have?",
    ),
    (r"positional argument", "Which arguments does loss take, and which does jax.lax.scan pass to its body?"),
)

hints = (
    Hint(
        "Only a microbatch's own backward pass uses its activations. How early can that backward pass run, so that "
        "the next microbatch can reuse the memory?"
    ),
    Hint(
        "`jax.value_and_grad` returns the value and the gradient from one forward pass. How many times does your "
        "answer pass each microbatch to `loss`? And does it need a checkpoint?",
        on_kinds=("recomputes",),
    ),
    Hint(
        "At the peak, your answer has the activations or the gradients of several microbatches in memory. Does it take "
        "the gradient inside the loop, one microbatch at a time? And does the compiled program still have that loop?",
        on_kinds=("peak",),
    ),
    Hint(
        "Suppose that `loss` returns `(4, 2)` for one microbatch and `(6, 1)` for another. What is the mean over both, "
        "and which sums does it follow from? What does your answer compute from these four numbers?",
        on_kinds=("wrong value",),
    ),
    Hint(
        "The value is right, so the sums of the losses and of the weights are right. Do you also sum the gradients of "
        "all microbatches, and divide that sum by the same total weight?",
        on_kinds=("wrong gradient",),
    ),
    Hint(
        "`loss` returns a pair, and `params` and `batch` are trees. Run each step in a cell of its own: the gradient "
        "of one microbatch, `jax.tree.map` over the batch, one iteration of the loop.",
        on_kinds=("raises", "wrong type"),
    ),
    Hint(
        "The mean is the sum of the losses divided by the sum of the weights. Which of the two sums depends on "
        "`params`? So what is the gradient of the mean?"
    ),
    Hint(
        "Nearly the answer: scan over the microbatches, and carry the sums of the losses, the weights and the "
        "gradients. The body calls `jax.value_and_grad(loss, has_aux=True)`. What remains to be divided after the scan?"
    ),
    *ABOUT_ERRORS,
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
                turns=k,
                too_high="When does the first microbatch's backward pass run: before the second microbatch's forward "
                "pass, or after the last one's?",
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
