"""What is expected of an answer; only the judge reads this."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rematscope
from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.plain_data import Choice
from grader.exercises.requirements import KnownMistake
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
    """Return the names of the residuals that JAX saves for this operation and that its backward pass reads."""
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
    raise ProgramError(f"JAX {jax.__version__} saves a value for {op} that has none of the page's names.")


def _keeps(op, *names):
    """An answer that has something to say of one operation only."""
    return lambda asked: names if asked == op else None


_AHEAD = "is enough, but the backward pass would have to compute the derivative. Does JAX compute it earlier?"
_SUM = "By what is the gradient multiplied on its way back from x + y to x? Does that have to be saved?"

mistakes = (
    KnownMistake(
        "it says that nothing is saved",
        lambda op: (),
        "Is the operation linear? If not, which value does the backward pass need?",
    ),
    KnownMistake(
        "it says that relu saves x",
        _keeps("relu", "x"),
        "By what does relu multiply the gradient where x is positive? Does that depend on how large x is there?",
    ),
    KnownMistake(
        "it says that relu saves its own output",
        _keeps("relu", "relu(x)"),
        "What does the backward pass need to know about each element, and what is the smallest array that says so?",
    ),
    KnownMistake(
        "it says that exp saves x",
        _keeps("exp", "x"),
        "What is the derivative of exp, and has the forward pass already computed it?",
    ),
    *(KnownMistake(f"it says that {op} saves x", _keeps(op, "x"), f"x {_AHEAD}") for op in ("sin", "tanh", "sigmoid")),
    KnownMistake("it says that cube saves x", _keeps("cube", "x"), f"x {_AHEAD}"),
    KnownMistake("it says that cube saves x ** 2", _keeps("cube", "x**2"), f"x ** 2 {_AHEAD}"),
    KnownMistake(
        "it says that sin saves its own output",
        _keeps("sin", "sin(x)"),
        "Can the derivative be computed from the output alone, including its sign?",
    ),
    *(
        KnownMistake(
            f"it says that {op} saves its own output",
            _keeps(op, f"{op}(x)"),
            "Does JAX save a value from which the derivative can be computed, or the derivative?",
        )
        for op in ("tanh", "sigmoid")
    ),
    KnownMistake(
        "it says that log saves its own output",
        _keeps("log", "log(x)"),
        "What is the derivative of log, and from which value is it computed?",
    ),
    KnownMistake(
        "it says that log saves its derivative",
        _keeps("log", "1 / x"),
        "Multiplying a gradient by 1 / x is the same as which other operation? What does that one need?",
    ),
    *(
        KnownMistake(f"it says that add saves {what}", _keeps("add", *names), _SUM)
        for what, *names in (("its result", "x + y"), ("its arguments", "x", "y"), ("x", "x"), ("y", "y"))
    ),
    *(
        KnownMistake(
            f"it says that dot saves {name} alone",
            _keeps("dot", name),
            "W @ x has a gradient with respect to each of its two operands. What does each of these gradients need?",
        )
        for name in ("x", "W")
    ),
    KnownMistake(
        "it says that dot saves its result",
        _keeps("dot", "W @ x"),
        "By what is the gradient multiplied on its way back to W, and by what on its way back to x?",
    ),
)

compared_with = "what JAX saves for this operation"
otherwise = "What does residual_table show for this operation?"

error_questions = ((r"KeyError", "For which operation in the page's table does your answer have no entry?"),)

hints = (
    Hint(
        "On its way back through the operation, the gradient is multiplied by a factor. What is that factor, and which "
        "of the page's names stands for it?"
    ),
    Hint(
        "The derivative of relu is 1 or 0. Which dtype stores that in the fewest bytes, and which of the page's names "
        "has that dtype?",
        on_kinds=("wrong value",),
        on_text="relu",
    ),
    Hint(
        "The derivative of `log(x)` is `1 / x`. Which single operation turns the gradient `dy` into `dy * (1 / x)`, "
        "and what does it need besides `dy`?",
        on_kinds=("wrong value",),
        on_text="log",
    ),
    Hint(
        "If `x` grows by 1, by how much does `x + y` grow? Does that number depend on `x` or `y`?",
        on_kinds=("wrong value",),
        on_text="add",
    ),
    Hint(
        "For `dot`, the gradient with respect to `W` is `outer(dy, x)`, and the gradient with respect to `x` is "
        "`dy @ W`. Which values do these two use besides `dy`?",
        on_kinds=("wrong value",),
        on_text="dot",
    ),
    Hint(
        "You know the derivative. What did JAX save for `x ** 2` on the page: `x`, or the derivative `2 * x`?",
        on_kinds=("wrong value",),
        on_text="derivative",
    ),
    Hint(
        "Compare each name in your answer with the page's list, character by character. Are they all there?",
        on_kinds=("unknown name", "wrong type"),
    ),
    Hint(
        "Which of the operations are linear? If an operation is linear, what does the gradient that it sends back "
        "depend on?"
    ),
    Hint(
        "Nearly the answer: call `residual_table(jnp.sin, x)`, and the same for the other operations. It shows which "
        "operation computed each residual, or that it is an argument. For `tanh`, what is 1 minus the output squared?"
    ),
    Hint(
        "Call your answer with each operation in the page's table. Which list does it return for each of them?",
        on_kinds=("raises",),
    ),
    Hint(
        "How many names does your list have, and how many should it have? `residual_table` for that operation has one "
        "row for each residual.",
        on_kinds=("wrong value",),
        on_text="of these",
    ),
    Hint(
        "What does your answer return for a single operation? It should be a list with a name from the page for each "
        "saved value.",
        on_kinds=("wrong type",),
    ),
    Hint(
        "A mask says where the derivative of relu is 1. Which of the page's names is an expression for that mask, and "
        "has its dtype?",
        on_kinds=("unknown name",),
        on_text="'mask'",
    ),
    Hint(
        "A list is written in square brackets, even if it has one element or none. What does your answer return for "
        "the operation in the finding, and is that a list of strings?",
        on_kinds=("wrong type",),
        on_text="returns",
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    return ()  # its answers are data
