"""What is expected of an answer; only the judge reads this."""

import operator

import jax

from grader.catalog.accumulate.task import WIDE, most_activations
from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.peaks import InPieces, PeakAtMost
from grader.exercises.requirements import MatmulsAtMost, Mistake, Requirement


def draw(rng, argument):
    """Matrices whose products leave the hyperbolic tangent's straight part."""
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


_WHICH = "What does the loop hand from one turn to the next, and what does a turn do with it?"
_MEANS = "If one microbatch weighs twice as much as another, how much should its mean count? And one without weight?"
_MANY = "By what is the sum of all gradients divided, and is the sum of all losses divided by the same?"

mistakes = (
    Mistake("this is the mean of the microbatches' means", _means, _MEANS),
    Mistake(
        "this is the gradient of the mean of the microbatches' means", _value_right(_means), _MEANS, in_gradient=True
    ),
    Mistake("this is the sum of all losses, not divided by their weights", _divided_by(lambda batch, k: 1), _MANY),
    Mistake(
        "this is the gradient of the sum, not divided by the weights",
        _value_right(_divided_by(lambda batch, k: 1)),
        _MANY,
        in_gradient=True,
    ),
    Mistake("this is the sum of all losses divided by k, not by their weights", _divided_by(lambda batch, k: k), _MANY),
    Mistake(
        "this is the gradient of the sum divided by k, not by the weights",
        _value_right(_divided_by(lambda batch, k: k)),
        _MANY,
        in_gradient=True,
    ),
    Mistake(
        "this is the sum of all losses divided by the number of rows, not by their weights",
        _divided_by(lambda batch, k: len(jax.tree.leaves(batch)[0])),
        _MANY,
    ),
    Mistake(
        "this is the value with every k-th row in the same microbatch, not with neighbors",
        lambda loss, params, batch, k: _right(loss, params, jax.tree.map(lambda array: _dealt_out(array, k), batch), k),
        "Which rows of the batch are in your first microbatch? Print your reshape of `jnp.arange(6)` for `k = 2`.",
    ),
    Mistake("this is the value of the last microbatch alone", _of_one(-1), _WHICH),
    Mistake("this is the gradient of the last microbatch alone", _value_right(_of_one(-1)), _WHICH, in_gradient=True),
    Mistake(
        "this is the value of the first microbatch alone",
        _of_one(0),
        "From where does each turn of your loop get its rows?",
    ),
    Mistake(
        "this is the value without the last microbatch",
        lambda loss, params, batch, k: _right(
            loss, params, jax.tree.map(lambda array: array[: max(1, k - 1) * len(array) // k], batch), max(1, k - 1)
        ),
        "How many turns does your loop take, and what becomes of the sums that the last one returns?",
    ),
)

error_questions = (
    (r"accumulate returned", "Which two things does the page ask for, and what is the second one a tree like?"),
    (
        r"'(tuple|dict)' object has no attribute|list indices|unsupported operand",
        "Which of JAX's functions does something to every array of a tree?",
    ),
    (r"scalar-output|scalar output", "loss returns two numbers. Which option of jax.value_and_grad takes that?"),
    (
        r"carry|must be a pair",
        "Which two things does the body of a scan return, and is the carry the same tree each time?",
    ),
    (
        r"reshape|leading axis|length|size",
        "Into how many microbatches of how many rows is each array of the batch cut?",
    ),
    (r"positional argument", "What does loss take, and what does a scan call its body with?"),
)

hints = (
    Hint(
        "What a microbatch keeps, it keeps for its own backward pass. When could that be run, at the earliest, so that "
        "the next microbatch finds the memory free?"
    ),
    Hint(
        "The activations of many microbatches, or gradients of many, are in memory at the same time. Which comes "
        "first in your answer: the loop, or the gradient? And is it a loop for XLA too?",
        after=("peak",),
    ),
    Hint(
        "Something is computed twice: a forward pass for the value and another one for the gradient, or one that a "
        "checkpoint runs again. Which function of JAX returns both, and who needs a checkpoint if nothing has to wait?",
        after=("recomputes",),
    ),
    Hint(
        "Take two microbatches, the first with losses 1 and 3 of weights 1 and 1, the second with loss 6 of weight 2. "
        "What is the mean of all, and what is the mean of their means? Which sums do you need for the former?",
        after=("wrong value",),
    ),
    Hint(
        "The value is right and the gradient is another number's. What is done to the losses at the end, and is the "
        "same done to the gradients?",
        after=("wrong gradient",),
    ),
    Hint(
        "`loss` returns a pair, `params` and `batch` are trees. Try the pieces alone: the gradient of one microbatch, "
        "`jax.tree.map` over the batch, and one turn of the loop.",
        after=("raises", "wrong type"),
    ),
    Hint("Which sums does the mean over a batch need, and which of them need a gradient?"),
    Hint(
        "Nearly the answer: a scan over microbatches, whose carry is a sum of losses, one of weights and one of "
        "gradients. Its body calls `jax.value_and_grad(loss, has_aux=True)`. What is left to do after the last turn?"
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    asked: list[Requirement] = [
        MatmulsAtMost(1, too_many="How often is each microbatch's forward pass run, and for what?")
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
                too_high="When is the backward pass of the first microbatch run: before the second one's forward "
                "pass, or behind the last one's?",
                unit="one microbatch's activations",
            )
        )
    pieces = InPieces(
        rows,
        of=rows * k,
        pieces="microbatches",
        too_large="How many rows of the batch does loss get at once in your answer, and is that so for every k?",
    )
    return [asked, [pieces]]
