"""What is expected of an answer; only the judge reads this."""

import jax
import jax.numpy as jnp

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import Mistake, Recomputes, Saves


def draw(rng, argument):
    """Numbers whose products are large enough that a sine is not about its argument, small enough to round little."""
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
    Mistake("this is g(h(x))", lambda g, h, x: (g(h(x)), lambda dz: x), "Which of g and h comes first in h(g(x))?"),
    Mistake("this is g(x)", lambda g, h, x: (g(x), lambda dz: x), "What is done with g(x) to get z?"),
    Mistake("this is h(x)", lambda g, h, x: (h(x), lambda dz: x), "What does h take: x, or what g makes of it?"),
    Mistake(
        "dz goes to g's pullback first, and what comes out to h's",
        _to_g_first,
        "Of which value is dz the gradient, and which of the two functions has returned that value?",
        in_gradient=True,
    ),
    Mistake(
        "g's pullback is made at g(x)",
        lambda g, h, x: _through(g, h, x, g_at=g),
        "What was g given in the forward pass? There its pullback has to be made.",
        in_gradient=True,
    ),
    Mistake(
        "h's pullback is made at x",
        lambda g, h, x: _through(g, h, x, h_at=lambda x: x),
        "What was h given in the forward pass? There its pullback has to be made.",
        in_gradient=True,
    ),
    Mistake(
        "it does not depend on dz, as if all of that were 1",
        lambda g, h, x: _through(g, h, x, dz=jnp.ones_like),
        "What is bwd given, and where does it use that?",
        in_gradient=True,
    ),
    Mistake(
        "this is what comes out of g's pullback alone",
        lambda g, h, x: (h(g(x)), lambda dz: jax.vjp(g, x)[1](dz)[0]),
        "How does the gradient get from z to g(x), before it gets from there to x?",
        in_gradient=True,
    ),
    Mistake(
        "this is what comes out of h's pullback alone",
        lambda g, h, x: (h(g(x)), lambda dz: jax.vjp(h, g(x))[1](dz)[0]),
        "Of which value is that the gradient, and how does it get from there to x?",
        in_gradient=True,
    ),
)

error_questions = (
    (r"^bwd\(dz\) returns", "What should bwd(dz) return?"),
    (
        r"^NotImplementedError",
        "What does bwd get, what must it return, and which two pullbacks lead from the one to the other?",
    ),
    (
        r"scalar-output",
        "jax.grad wants a function that returns one number. Which function of the page's does any, with dz for the "
        "gradient of what it returns?",
    ),
    (r"UnexpectedTracer", "Which value leaves your answer in another way than through bwd?"),
    (
        r"not callable|Expected a callable",
        "Which of the values in that line is a function, and which is what a function returned?",
    ),
    (r"Tracer|Concret", "What in that line needs an array's numbers, where only its shape is known?"),
    (r"unhashable|not a valid JAX type|not subscriptable", "What does jax.vjp return, and what does its pullback?"),
    (
        r"Error.*(tuple|tree structure)",
        "A pullback returns a tuple, of one gradient an argument: where do you take the gradient out of it?",
    ),
    (
        r"positional argument",
        "What does jax.vjp take besides the function, and what does bwd take? It gets dz and nothing else.",
    ),
    (
        r"cotangent|shape",
        "Of which value is each pullback's argument the gradient: of z, of g(x), or of x?",
    ),
)

hints = (
    Hint(
        "What does the backward pass need first: the pullback of `h`, or that of `g`? And what must be at hand when "
        "`jax.vjp(g, x)` is called?"
    ),
    Hint(
        "In which of the two passes does your answer call `jax.vjp(g, x)`? What does the pullback that comes back "
        "hold on to from then on?",
        after=("also saved",),
        says="g's",
    ),
    Hint(
        "Which line of `bwd` works with `g(x)`? If it is the one that makes `h`'s pullback: can that pullback be made "
        "before, in the forward pass?",
        after=("also saved",),
        says="g(x)",
    ),
    Hint(
        "Both pullbacks of the page's `plain_vjp` come from the forward pass. Which of the two may stay there, and "
        "which one has to be made anew, from `x`?",
        after=("not saved", "recomputes"),
    ),
    Hint(
        "How often is `g` called in your forward pass, and how often `h`? `jax.vjp(h, y)` returns `h(y)` too.",
        after=("extra matmuls",),
    ),
    Hint(
        "What is in the tuple that a pullback returns? And what does `bwd` have to return?",
        after=("wrong type", "raises"),
        says="tuple",
    ),
    Hint(
        "`jax.vjp(g, …)` makes a pullback that is right at one point, the one that it is given. At which point does "
        "`g` have to be differentiated: at `x`, or at `g(x)`?",
        after=("wrong gradient",),
        says="g's pullback is made at",
    ),
    Hint("What goes into the pullback of `h`, what comes out, and whose gradient is that?", after=("wrong gradient",)),
    Hint(
        "Nearly the answer: forward, `y = g(x)` and then `jax.vjp(h, y)`. In `bwd`, first `h`'s pullback, then "
        "`jax.vjp(g, x)`, and the new pullback on what came out of the first."
    ),
    Hint(
        "The gradient goes back the way that the value came: from `z` to `g(x)`, and from there to `x`. Which pullback "
        "makes the first step, and so gets `dz`?",
        after=("wrong gradient",),
        says="to g's pullback first",
    ),
    Hint(
        "`bwd` is called with gradients that differ from number to number. Which of your lines hands `dz` on?",
        after=("wrong gradient",),
        says="does not depend on dz",
    ),
    Hint(
        "The chain rule has two factors here, one for each function. Which one is missing in `bwd`?",
        after=("wrong gradient",),
        says="pullback alone",
    ),
    Hint(
        "Say in words what `g` and `h` do with `x`, one after the other. Which of the two is called first, and what "
        "is the other one called with?",
        after=("wrong value", "argument order"),
    ),
    Hint(
        "`z, bwd = vjp_by_hand(g, h, x)`: what are the two, and in which order does your `return` name them?",
        after=("wrong type",),
    ),
    Hint(
        "`bwd` has one argument, `dz`. Where does it have all else from that it uses?",
        after=("raises",),
        says="It gets dz and nothing else",
    ),
    Hint(
        "`bwd` is a function inside of yours, with a `return` of its own: what does that return?",
        after=("wrong type",),
        says="bwd(dz) returns None",
    ),
    Hint(
        "Two lines make a backward pass of two functions, as in the page's `plain_vjp`. Which of its four lines move "
        "into `bwd` here, and which stay where they are?",
        after=("raises",),
        says="which two pullbacks lead",
    ),
    Hint(
        "Does `bwd` do anything else with `dz` than to hand it to the first pullback? And does your forward pass do to "
        "`x` what `h(g(x))` does, and nothing else?",
        after=("wrong gradient",),
        says="is wrong.",
    ),
    Hint(
        "Which of the values in that line does `bwd` or the pullback get from you, and which does it hand back?",
        after=("raises",),
    ),
    Hint(
        "What is the last thing that `bwd` does: has it called `g`'s pullback, and taken the array out of the tuple?",
        after=("wrong type",),
        says="should bwd(dz) return",
    ),
    Hint(
        "`jax.vjp(h, …)` makes a pullback that is right at one point. At which point is `h` in the forward pass: at "
        "`x`, or at `g(x)`?",
        after=("wrong gradient",),
        says="h's pullback is made at",
    ),
    Hint(
        "`jax.vjp` and what it returns work with arrays whose numbers are not there yet. Which line leaves JAX for "
        "NumPy or Python, and is it needed?",
        after=("raises",),
        says="only its shape is known",
    ),
    Hint(
        "`jax.vjp(f, x)` returns `f(x)` and a pullback, whatever the shape of `f(x)`. What does the pullback take, and "
        "from where would `jax.grad` get that?",
        after=("raises",),
        says="jax.grad wants a function",
    ),
    Hint(
        "`jax.vjp(h, y)` gets a function and, behind a comma, where to differentiate it. Which of the two does it get "
        "in your answer, and which has been called before it gets it?",
        after=("raises",),
        says="which is what a function returned",
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    more = ("what else h's pullback holds",) if case.structure["kept"] == "integers and floats" else ()
    saves = Saves(
        ("what h's pullback holds", *more),
        too_much="Which names from outside does bwd use, and what do they hold on to?",
        too_little="Which pullback can be made in the forward pass already, so that bwd need not run h again?",
        by_hand=True,
    )
    recomputes = Recomputes(
        dots=2,
        too_many="Which functions does bwd run, and how often each?",
        elsewhere="Is g or h run twice in your forward pass? And does bwd run one of them on a value that has dz in "
        "it?",
    )
    # With a single column a product is no more work than a sum of squares, which is nobody's mistake.
    return [[saves, recomputes] if case.structure["w"] > 1 else [saves]]
