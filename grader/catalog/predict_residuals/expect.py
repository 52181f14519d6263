"""What is expected of an answer; only the judge reads this."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rematscope
from grader.exercises.feedback import read_feedback
from grader.exercises.spec import Choice
from grader.stablehlo.types import ProgramError

feedback = read_feedback(__file__)
mistake = feedback.mistake

# The operands: numbers for which no two of the page's values are equal.
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
    """Return the names that the page offers, and what they mean."""
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
    return Choice(tuple(_argument_name(op, array) for array in read), tuple(page_values()))


def _argument_name(op, array) -> str:
    for name, value in page_values().items():
        if (array.shape, array.dtype) == (value.shape, value.dtype) and np.allclose(array, value, rtol=1e-6, atol=1e-6):
            return name
    raise ProgramError(f"JAX {jax.__version__} saves a value for {op} that has none of the page's names.")


def _answer_for(op, *names):
    """Return an answer that is nonempty only for one operation."""
    return lambda asked: names if asked == op else None


mistakes = (
    mistake("saves_nothing", lambda op: ()),
    mistake("relu_saves_x", _answer_for("relu", "x")),
    mistake("relu_saves_output", _answer_for("relu", "relu(x)")),
    mistake("exp_saves_x", _answer_for("exp", "x")),
    *(mistake("op_saves_x", _answer_for(op, "x"), op=op) for op in ("sin", "tanh", "sigmoid")),
    mistake("cube_saves_x", _answer_for("cube", "x")),
    mistake("cube_saves_square", _answer_for("cube", "x**2")),
    mistake("sin_saves_output", _answer_for("sin", "sin(x)")),
    *(mistake("op_saves_output", _answer_for(op, f"{op}(x)"), op=op) for op in ("tanh", "sigmoid")),
    mistake("log_saves_output", _answer_for("log", "log(x)")),
    mistake("log_saves_derivative", _answer_for("log", "1 / x")),
    *(
        mistake("add_saves", _answer_for("add", *names), what=what)
        for what, *names in (("its result", "x + y"), ("its arguments", "x", "y"), ("x", "x"), ("y", "y"))
    ),
    *(mistake("dot_saves_one_operand", _answer_for("dot", name), name=name) for name in ("x", "W")),
    mistake("dot_saves_result", _answer_for("dot", "W @ x")),
)
