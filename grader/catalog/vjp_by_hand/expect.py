"""What is expected of an answer; only the judge reads this."""

import jax
import jax.numpy as jnp

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import KnownMistake, Recomputes, Saves


def sample_input(rng, argument):
    """Return values whose matmuls are large enough that sin(y) differs from y, and small enough to round little."""
    size = rng.uniform(0.3, 1.2, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


def _to_g_first(g, h, x):
    y, g_vjp = jax.vjp(g, x)
    z, h_vjp = jax.vjp(h, y)
    return z, lambda dz: h_vjp(*g_vjp(dz))[0]


def _through(g, h, x, *, g_at=None, h_at=None, dz=lambda dz: dz):
    """z and bwd, with the pullbacks made at these functions' values of x, and dz changed."""
    y = g(x)
    _, g_vjp = jax.vjp(g, x if g_at is None else g_at(x))
    _, h_vjp = jax.vjp(h, y if h_at is None else h_at(x))
    return h(y), lambda given: g_vjp(*h_vjp(dz(given)))[0]


mistakes = (
    KnownMistake(
        "this is g(h(x))", lambda g, h, x: (g(h(x)), lambda dz: x), "Which function is called first in h(g(x)), g or h?"
    ),
    KnownMistake("this is g(x)", lambda g, h, x: (g(x), lambda dz: x), "Which function turns g(x) into z?"),
    KnownMistake("this is h(x)", lambda g, h, x: (h(x), lambda dz: x), "What is the argument of h: x or g(x)?"),
    KnownMistake(
        "dz is passed to g's pullback first, and the result to h's pullback",
        _to_g_first,
        "dz is the gradient of which value, and which of the two functions returned that value?",
        check_gradient=True,
    ),
    KnownMistake(
        "g's pullback is computed at g(x) instead of at x",
        lambda g, h, x: _through(g, h, x, g_at=g),
        "What is g's argument in the forward pass? Its pullback must be computed at the same point.",
        check_gradient=True,
    ),
    KnownMistake(
        "h's pullback is computed at x instead of at g(x)",
        lambda g, h, x: _through(g, h, x, h_at=lambda x: x),
        "What is h's argument in the forward pass? Its pullback must be computed at the same point.",
        check_gradient=True,
    ),
    KnownMistake(
        "it does not depend on dz, as if every element of dz were 1",
        lambda g, h, x: _through(g, h, x, dz=jnp.ones_like),
        "Where does bwd use its argument dz?",
        check_gradient=True,
    ),
    KnownMistake(
        "this is the result of g's pullback alone",
        lambda g, h, x: (h(g(x)), lambda dz: jax.vjp(g, x)[1](dz)[0]),
        "How does bwd get from the gradient of z to the gradient of g(x)?",
        check_gradient=True,
    ),
    KnownMistake(
        "this is the result of h's pullback alone",
        lambda g, h, x: (h(g(x)), lambda dz: jax.vjp(h, g(x))[1](dz)[0]),
        "h's pullback returns the gradient of which value? How does bwd get from there to the gradient of x?",
        check_gradient=True,
    ),
)

error_questions = (
    (r"^bwd\(dz\) returns", "What should bwd(dz) return?"),
    (
        r"^NotImplementedError",
        "bwd gets the gradient of z and returns the gradient of x. Which two pullbacks lead from one to the other?",
    ),
    (
        r"scalar-output",
        "jax.grad needs a function that returns one number. Which function on the page also works for arrays, with dz "
        "as the gradient of the output?",
    ),
    (r"UnexpectedTracer", "Which value does your answer store outside, instead of returning it or using it in bwd?"),
    (
        r"not callable|Expected a callable",
        "Which value on that line should be a function, and is it one, or what a function returned?",
    ),
    (r"Tracer|Concret", "Which operation on that line needs the values of an array, not only its shape and dtype?"),
    (r"unhashable|not a valid JAX type|not subscriptable", "What does jax.vjp return, and what does its pullback?"),
    (
        r"Error.*(tuple|tree structure)",
        "A pullback returns a tuple with one gradient per argument. Where do you take the gradient out of it?",
    ),
    (
        r"positional argument",
        "Which arguments does jax.vjp take after the function? And which does bwd take? It is called with dz only.",
    ),
    (
        r"cotangent|shape",
        "Each pullback takes the gradient of its function's output. Which value is that for g, and which for h?",
    ),
)

hints = (
    Hint(
        "Which pullback does the backward pass call first, that of `h` or that of `g`? And which value does "
        "`jax.vjp(g, x)` need?"
    ),
    Hint(
        "In which pass does your answer call `jax.vjp(g, x)`? Which arrays does the pullback hold from then on?",
        on_kinds=("also saved",),
        on_text="g's",
    ),
    Hint(
        "Which line of `bwd` uses `g(x)`? If it is the line that computes `h`'s pullback, can you compute that "
        "pullback in the forward pass instead?",
        on_kinds=("also saved",),
        on_text="g(x)",
    ),
    Hint(
        "The page's `plain_vjp` computes both pullbacks in the forward pass. Which of them can stay there, and which "
        "has to be computed in `bwd`, from `x`?",
        on_kinds=("not saved", "recomputes"),
    ),
    Hint(
        "How many times does your forward pass call `g`, and how many times `h`? `jax.vjp(h, y)` also returns `h(y)`.",
        on_kinds=("extra matmuls",),
    ),
    Hint(
        "A pullback returns a tuple. What is in it, and what should `bwd` return?",
        on_kinds=("wrong type", "raises"),
        on_text="tuple",
    ),
    Hint(
        "`jax.vjp(g, point)` returns a pullback that is right at that point. At which point do you have to "
        "differentiate `g`: at `x` or at `g(x)`?",
        on_kinds=("wrong gradient",),
        on_text="g's pullback is computed at",
    ),
    Hint(
        "What is the argument of `h`'s pullback in your `bwd`? What does it return: the gradient of which value?",
        on_kinds=("wrong gradient",),
    ),
    Hint(
        "Nearly the answer: in the forward pass, compute `y = g(x)` and `jax.vjp(h, y)`. In `bwd`, call `h`'s pullback "
        "with `dz`, then `jax.vjp(g, x)`, and call the new pullback with the result of the first."
    ),
    Hint(
        "The gradient follows the path of the value backward: from `z` to `g(x)`, and from `g(x)` to `x`. Which "
        "pullback makes the first step, and so gets `dz`?",
        on_kinds=("wrong gradient",),
        on_text="to g's pullback first",
    ),
    Hint(
        "`bwd` is called with gradients whose elements differ. Which of its lines uses `dz`?",
        on_kinds=("wrong gradient",),
        on_text="does not depend on dz",
    ),
    Hint(
        "The chain rule has two factors here, one for each function. Which of them is missing in `bwd`?",
        on_kinds=("wrong gradient",),
        on_text="pullback alone",
    ),
    Hint(
        "`z` is `h(g(x))`. Which function is called first, and with what? What is the argument of the second one?",
        on_kinds=("wrong value", "argument order"),
    ),
    Hint(
        "The page calls `z, bwd = vjp_by_hand(g, h, x)`. Does your answer return these two, in this order?",
        on_kinds=("wrong type",),
    ),
    Hint(
        "`bwd` has one argument, `dz`. It is a closure: which variables of your function can it use as well?",
        on_kinds=("raises",),
        on_text="It is called with dz only",
    ),
    Hint(
        "`bwd` is a function inside yours, and needs a `return` of its own. What does it return?",
        on_kinds=("wrong type",),
        on_text="bwd(dz) returns None",
    ),
    Hint(
        "Compare with the page's `plain_vjp`. Which of its four lines move into `bwd`, and which stay where they are?",
        on_kinds=("raises",),
        on_text="Which two pullbacks lead",
    ),
    Hint(
        "Does `bwd` pass `dz` to the first pullback unchanged? Does your forward pass compute `h(g(x))`, and nothing "
        "else?",
        on_kinds=("wrong gradient",),
        on_text=" wrong.",
    ),
    Hint(
        "Print each value on that line, and its shape. Which of them are arguments of `bwd` or of a pullback, and "
        "which are results?",
        on_kinds=("raises",),
    ),
    Hint(
        "What is the last step of `bwd`? It should call `g`'s pullback and return the array in the tuple.",
        on_kinds=("wrong type",),
        on_text="should bwd(dz) return",
    ),
    Hint(
        "`jax.vjp(h, point)` returns a pullback that is right at that point. With which argument does the forward pass "
        "call `h`: with `x` or with `g(x)`?",
        on_kinds=("wrong gradient",),
        on_text="h's pullback is computed at",
    ),
    Hint(
        "While JAX traces, arrays have no values yet. Which line uses NumPy or Python on an array, and do you need "
        "that line?",
        on_kinds=("raises",),
        on_text="not only its shape",
    ),
    Hint(
        "`jax.vjp(f, x)` returns `f(x)` and a pullback, for any shape of `f(x)`. What is the pullback's argument, and "
        "could `jax.grad` know it?",
        on_kinds=("raises",),
        on_text="jax.grad needs a function",
    ),
    Hint(
        "`jax.vjp(h, y)` takes a function and the point at which to differentiate it. Does it get a function in your "
        "answer, or the result of a call?",
        on_kinds=("raises",),
        on_text="or what a function returned",
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    more = ("h's other residual",) if case.structure["kept"] == "integers and floats" else ()
    saves = Saves(
        ("h's residual", *more),
        too_much="Which variables from outside does bwd use, and which arrays do they hold?",
        too_little="Which pullback can you compute in the forward pass, so that bwd does not run h again?",
        by_hand=True,
    )
    recomputes = Recomputes(
        count=2,
        too_many="Which functions does bwd run, and how many times each?",
        elsewhere="Does your forward pass run g or h twice? Does bwd run one of them on a value that depends on dz?",
    )
    # With a single column a matmul is no more FLOPs than a sum of squares, which is no mistake.
    return [[saves, recomputes] if case.structure["w"] > 1 else [saves]]
