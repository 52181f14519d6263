"""What is expected of an answer; only the judge reads this."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rematscope
from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.plain_data import Choice
from grader.exercises.requirements import Mistake
from grader.stablehlo.types import ProgramError

# What the operations take: numbers at which no two of the page's values are alike.
X = np.array([-1.5, -0.3, 0.4, 1.2], np.float32)
Y = np.array([1, 2, 3, 4], np.float32)
W = np.linspace(0.5, 2, 12, dtype=np.float32).reshape(3, 4)

OPERATIONS: dict[str, tuple[Any, ...]] = {
    "sin": (jnp.sin, X),
    "exp": (jnp.exp, X),
    "relu": (jax.nn.relu, X),
    "tanh": (jnp.tanh, X),
    "log": (jnp.log, X),
    "sigmoid": (jax.nn.sigmoid, X),
    "cube": (lambda x: x**3, X),
    "add": (jnp.add, X, Y),
    "dot": (jnp.dot, W, X),
}


@functools.cache
def page_values() -> dict:
    """The names that the page offers, and what they mean."""
    return {
        "x": X,
        "y": Y,
        "W": W,
        "sin(x)": jnp.sin(X),
        "cos(x)": jnp.cos(X),
        "exp(x)": jnp.exp(X),
        "relu(x)": jax.nn.relu(X),
        "x > 0": X > 0,
        "tanh(x)": jnp.tanh(X),
        "1 - tanh(x)**2": 1 - jnp.tanh(X) ** 2,
        "log(x)": jnp.log(X),
        "1 / x": 1 / X,
        "sigmoid(x)": jax.nn.sigmoid(X),
        "sigmoid(x) * (1 - sigmoid(x))": jax.nn.sigmoid(X) * (1 - jax.nn.sigmoid(X)),
        "x**2": X**2,
        "3 * x**2": 3 * X**2,
        "x + y": X + Y,
        "W @ x": W @ X,
    }


@functools.cache
def reference(op) -> Choice:
    """What JAX keeps for this operation's backward pass and reads there: its residuals' values, by their names."""
    function, *arguments = OPERATIONS[op]
    passes = rematscope.trace(function, *arguments)
    returned = passes.forward(*arguments)
    kept = returned[len(returned) - len(passes.residuals) :]
    read = [array for array, residual in zip(kept, passes.residuals, strict=True) if residual.needed_by is not None]
    return Choice(tuple(_name(op, array) for array in read), tuple(page_values()))


def _name(op, array) -> str:
    for name, value in page_values().items():
        if (array.shape, array.dtype) == (value.shape, value.dtype) and np.allclose(array, value, rtol=1e-6, atol=1e-6):
            return name
    raise ProgramError(f"JAX {jax.__version__} keeps something for {op} that none of the page's names stands for.")


def _keeps(op, *names):
    """An answer that has something to say of one operation only."""
    return lambda asked: names if asked == op else None


_AHEAD = "would do, but then the backward pass would have to compute the derivative. Does JAX compute it before?"
_SUM = "By what is a gradient multiplied on its way back from x + y to x? Is that a value that has to be kept?"

mistakes = (
    Mistake(
        "it says that nothing is kept",
        lambda op: (),
        "Is the operation linear? If not, what must the backward pass know?",
    ),
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
    *(Mistake(f"it says that {op} saves x", _keeps(op, "x"), f"x {_AHEAD}") for op in ("sin", "tanh", "sigmoid")),
    Mistake("it says that x ** 3 saves x", _keeps("cube", "x"), f"x {_AHEAD}"),
    Mistake("it says that x ** 3 saves x ** 2", _keeps("cube", "x**2"), f"x ** 2 {_AHEAD}"),
    Mistake(
        "it says that sin saves its own output",
        _keeps("sin", "sin(x)"),
        "Can the derivative be told from the output alone, its sign too?",
    ),
    *(
        Mistake(
            f"it says that {op} saves its own output",
            _keeps(op, f"{op}(x)"),
            "Does JAX keep what the derivative can be computed from, or the derivative?",
        )
        for op in ("tanh", "sigmoid")
    ),
    Mistake(
        "it says that log saves its own output",
        _keeps("log", "log(x)"),
        "What is the derivative of log, and of what is it made?",
    ),
    Mistake(
        "it says that log saves its derivative",
        _keeps("log", "1 / x"),
        "A gradient can be multiplied by 1 / x in another way. Which operation does it, and what does that one need?",
    ),
    *(
        Mistake(f"it says that a sum saves {what}", _keeps("add", *names), _SUM)
        for what, *names in (("its result", "x + y"), ("its arguments", "x", "y"), ("x", "x"), ("y", "y"))
    ),
    *(
        Mistake(
            f"it says that a matrix product saves {name} alone",
            _keeps("dot", name),
            "For which of its two arguments does the product have a gradient, and what does each of these need?",
        )
        for name in ("x", "W")
    ),
    Mistake(
        "it says that a matrix product saves its result",
        _keeps("dot", "W @ x"),
        "What is the gradient with respect to W multiplied by, and what the one with respect to x?",
    ),
)

compared_with = "what JAX does"
otherwise = "What does rematscope's residual_table show for something of this kind?"

error_questions = (
    (r"KeyError", "For which of the operations has your answer nothing to say? They are named on the page."),
)

hints = (
    Hint("To send a gradient back through the operation, what is it multiplied by? Which of the page's names is that?"),
    Hint(
        "relu's derivative is 1 or 0. Which dtype says that in the fewest bytes, and which of the names has it?",
        after=("wrong value",),
        says="relu",
    ),
    Hint(
        "The derivative of `log(x)` is `1 / x`. Written as one operation, what does the backward pass do with `dy`, "
        "and what must be at hand for that?",
        after=("wrong value",),
        says="log",
    ),
    Hint(
        "If `x` grows by 1, by how much does `x + y` grow? Is there an `x` or a `y` in that number?",
        after=("wrong value",),
        says="add",
    ),
    Hint(
        "For `dot`, the gradient with respect to `W` is `outer(dy, x)`, and that with respect to `x` is `dy @ W`. What "
        "stands there besides `dy`?",
        after=("wrong value",),
        says="dot",
    ),
    Hint(
        "You know the derivative. On the page, did `x ** 2` keep `x`, or the derivative, computed ahead?",
        after=("wrong value",),
        says="derivative",
    ),
    Hint("Are all your names in the page's list, letter by letter?", after=("unknown name", "wrong type")),
    Hint("Which of the operations are linear? What does a gradient that comes back through one of these depend on?"),
    Hint(
        "Nearly the answer: `residual_table(jnp.sin, x)`, and likewise for the others, says which operation made each "
        "kept value, or that it is an argument. For `tanh`, what is 1 minus the square of its output?"
    ),
    Hint(
        "Go through the operations in the page's list, one by one: for each of them, which list does your answer "
        "return?",
        after=("raises",),
    ),
    Hint(
        "How many names has your list, and how many of them are kept? Look at `residual_table` for that operation "
        "on the page: one row for each value that is kept.",
        after=("wrong value",),
        says="of these",
    ),
    Hint(
        "What does your answer return for one operation: a list, with a name from the page's list for each value "
        "that is kept?",
        after=("wrong type",),
    ),
    Hint(
        "A mask says where relu's derivative is 1. Which of the page's names is that mask, written as an expression, "
        "and which dtype has it?",
        after=("unknown name",),
        says="'mask'",
    ),
    Hint(
        "A list has square brackets, also where it has one name in it, or none. What does your answer return for the "
        "operation that the finding names, and is that a list of strings?",
        after=("wrong type",),
        says="returns",
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    return ()  # its answers are data
