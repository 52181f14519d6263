"""What is expected of an answer; only the judge reads this."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import rematscope
from grader.data import Choice
from grader.hints import Hint
from grader.programs import ProgramError
from grader.requirements import Mistake

_X = np.array([-1.5, -0.3, 0.4, 1.2], np.float32)
_W = np.linspace(0.5, 2, 12, dtype=np.float32).reshape(3, 4)

_OPERATIONS = {
    "sin": (jnp.sin, _X),
    "exp": (jnp.exp, _X),
    "relu": (jax.nn.relu, _X),
    "tanh": (jnp.tanh, _X),
    "dot": (jnp.dot, _W, _X),
}

# The names that the page offers, and what they mean.
_NAMES = {
    "x": lambda W, x: x,
    "W": lambda W, x: W,
    "sin(x)": lambda W, x: jnp.sin(x),
    "cos(x)": lambda W, x: jnp.cos(x),
    "exp(x)": lambda W, x: jnp.exp(x),
    "tanh(x)": lambda W, x: jnp.tanh(x),
    "1 - tanh(x)**2": lambda W, x: 1 - jnp.tanh(x) ** 2,
    "relu(x)": lambda W, x: jax.nn.relu(x),
    "x > 0": lambda W, x: x > 0,
    "W @ x": lambda W, x: W @ x,
}


@functools.cache
def reference(op) -> Choice:
    """What JAX keeps for this operation's backward pass and reads there: its residuals' values, by their names."""
    function, *arguments = _OPERATIONS[op]
    passes = rematscope.trace(function, *arguments)
    kept = passes.forward(*arguments)[-len(passes.residuals) :]
    read = [array for array, residual in zip(kept, passes.residuals, strict=True) if residual.needed_by is not None]
    values = {name: value(_W, _X) for name, value in _NAMES.items()}
    return Choice(tuple(_name(op, array, values) for array in read), tuple(_NAMES))


def _name(op, array, values) -> str:
    for name, value in values.items():
        if (array.shape, array.dtype) == (value.shape, value.dtype) and np.allclose(array, value, rtol=1e-6, atol=1e-6):
            return name
    raise ProgramError(f"JAX {jax.__version__} keeps something for {op} that none of the page's names stands for.")


def _keeps(op, *names):
    """An answer that is this for one operation."""
    return lambda asked: names if asked == op else ()


mistakes = (
    Mistake(
        "it says that relu saves x",
        _keeps("relu", "x"),
        "Where relu lets a gradient through, what does it multiply it by? Does that depend on how large x is there?",
    ),
    Mistake(
        "it says that relu saves its own output",
        _keeps("relu", "relu(x)"),
        "What does the backward pass read off relu(x), and what is the smallest array that says as much?",
    ),
    Mistake(
        "it says that exp saves x",
        _keeps("exp", "x"),
        "What is the derivative of exp, and is it at hand when the forward pass is through?",
    ),
    *(
        Mistake(
            f"it says that {op} saves x",
            _keeps(op, "x"),
            "x would do, but then the backward pass would have to compute the derivative. Does JAX compute it before?",
        )
        for op in ("sin", "tanh")
    ),
    Mistake(
        "it says that tanh saves its own output",
        _keeps("tanh", "tanh(x)"),
        "Does JAX keep what the derivative can be computed from, or the derivative?",
    ),
    *(
        Mistake(
            f"it says that a product saves {name} alone",
            _keeps("dot", name),
            "For which of its two arguments does the product have a gradient, and what does each of these need?",
        )
        for name in ("x", "W")
    ),
    Mistake(
        "it says that a product saves its result",
        _keeps("dot", "W @ x"),
        "What is the gradient with respect to W multiplied by, and what the one with respect to x?",
    ),
)

error_questions = (
    (r"KeyError", "For which of the five operations has your answer nothing to say? They are named on the page."),
)

hints = (
    Hint("To send a gradient back through the operation, what is it multiplied by? Which of the page's names is that?"),
    Hint(
        "You know the derivatives. On the page, did `x ** 2` keep `x`, or the derivative, computed ahead?",
        after=("wrong value",),
    ),
    Hint("Are all your names in the page's list, letter by letter?", after=("unknown name", "wrong type")),
    Hint(
        "relu's derivative is 1 or 0. Which dtype says that in the fewest bytes, and which of the names has it?",
        after=("wrong value", "unknown name"),
    ),
    Hint(
        "For `dot`, the gradient with respect to `W` is `outer(dy, x)`, and that with respect to `x` is `dy @ W`. What "
        "stands there besides `dy`?"
    ),
    Hint(
        "Nearly the answer: `residual_table(jnp.sin, x)`, and likewise for the other four, says which operation made "
        "each kept value. For `tanh`, what is 1 minus the square of its output?"
    ),
)

requirements = ()
