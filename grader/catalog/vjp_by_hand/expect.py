"""What is expected of an answer; only the judge reads this."""

from grader.exercises.hints import Hint
from grader.exercises.requirements import Mistake, Recomputes, Saves


def draw(rng, argument):
    """Numbers whose products are large enough that a sine is not about its argument, small enough to round little."""
    size = rng.uniform(0.3, 1.2, argument.shape)
    return (size * rng.choice([-1, 1], argument.shape)).astype(argument.dtype)


mistakes = (
    Mistake("this is g(h(x))", lambda g, h, x: (g(h(x)), lambda dz: x), "Which of g and h comes first in h(g(x))?"),
    Mistake("this is g(x)", lambda g, h, x: (g(x), lambda dz: x), "What is done with g(x) to get z?"),
)

error_questions = (
    (r"^bwd\(dz\) returns", "What should bwd(dz) return?"),
    (
        r"^NotImplementedError",
        "What does bwd get, what must it return, and which two pullbacks lead from the one to the other?",
    ),
    (r"UnexpectedTracer", "Which value leaves your answer in another way than through bwd?"),
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
    (r"not callable", "Which of the values in that line is a function, and which is what a function returned?"),
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
    ),
    Hint(
        "`jax.vjp(g, …)` makes a pullback that is right at one point, the one that it is given. At which point does "
        "`g` have to be differentiated: at `x`, or at `g(x)`?",
        after=("wrong gradient",),
    ),
    Hint("What goes into the pullback of `h`, what comes out, and whose gradient is that?", after=("wrong gradient",)),
    Hint(
        "Nearly the answer: forward, `y = g(x)` and then `jax.vjp(h, y)`. In `bwd`, first `h`'s pullback, then "
        "`jax.vjp(g, x)`, and the new pullback on what came out of the first."
    ),
)

_REQUIREMENTS = (
    (
        ("sines", "h keeps its input", "vmap over x"),
        (
            Saves(
                ("what h's pullback holds",),
                too_much="Which names from outside does bwd use, and what do they hold on to?",
                too_little="Which pullback can be made in the forward pass already, so that bwd need not run h again?",
                by_hand=True,
            ),
            Recomputes(
                dots=2,
                too_many="Which functions does bwd run, and how often each?",
                elsewhere="Is g or h run twice in your forward pass? And does bwd run one of them on a value that has "
                "dz in it?",
            ),
        ),
    ),
)


def requirements(case):
    return [group if case.name in cases else () for cases, group in _REQUIREMENTS]
