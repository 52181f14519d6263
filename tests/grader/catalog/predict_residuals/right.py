"""Right answers to predict_residuals, spelled in many ways."""

import jax
import jax.numpy as jnp
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes


@passes
def a_table(op):
    return {
        "sin": ["cos(x)"],
        "exp": ["exp(x)"],
        "relu": ["x > 0"],
        "tanh": ["1 - tanh(x)**2"],
        "log": ["x"],
        "sigmoid": ["sigmoid(x) * (1 - sigmoid(x))"],
        "cube": ["3 * x**2"],
        "add": [],
        "dot": ["x", "W"],
    }[op]


@passes
def cases_without_spaces(op):
    match op:
        case "sin":
            return ["cos( x )"]
        case "relu":
            return ["x>0"]
        case "tanh":
            return ["1-tanh(x) ** 2"]
        case "log":
            return ["x"]
        case "sigmoid":
            return ["sigmoid(x)*(1-sigmoid(x))"]
        case "cube":
            return ["3*x**2"]
        case "add":
            return ()
        case "dot":
            return ("W", "x")
    return [f"{op}(x)"]


@passes
def measured(op):
    x, y, W = jnp.array([-0.7, 0.2, 0.9]), jnp.array([3.0, 1.0, 2.0]), jnp.arange(6.0).reshape(2, 3)
    names = {
        "x": x,
        "W": W,
        "cos(x)": jnp.cos(x),
        "exp(x)": jnp.exp(x),
        "x > 0": x > 0,
        "1 - tanh(x)**2": 1 - jnp.tanh(x) ** 2,
        "sigmoid(x) * (1 - sigmoid(x))": jax.nn.sigmoid(x) * jax.nn.sigmoid(-x),
        "3 * x**2": 3 * x * x,
    }
    functions = {"relu": jax.nn.relu, "sigmoid": jax.nn.sigmoid, "cube": lambda x: x**3}
    arguments = {"dot": (W, x), "add": (x, y)}.get(op, (x,))
    kept = jax.tree.leaves(jax.vjp(functions.get(op) or getattr(jnp, op), *arguments)[1])
    same = {
        n for n, v in names.items() for a in kept if (a.shape, a.dtype) == (v.shape, v.dtype) and jnp.allclose(a, v)
    }
    return sorted(same)


NAMES = "sin", "cos(x)", "exp", "exp(x)", "relu", "x > 0", "tanh", "1 - tanh(x)**2", "cube", "3 * x**2"
NAMES += "sigmoid", "sigmoid(x) * (1 - sigmoid(x))"
