"""Right answers to predict_residuals, spelled in many ways."""

import jax
import jax.numpy as jnp
import numpy as np
from answers import Answers

RIGHT = Answers()
passes = RIGHT.passes


@passes
def a_table(op):
    return {
        "sin": ["cos(x)"],
        "exp": ["exp(x)"],
        "relu": ["x > 0"],
        "tanh": ["1 - tanh(x)**2"],
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
        case "dot":
            return ("W", "x")
    return [f"{op}(x)"]


@passes
def in_the_other_order(op):
    kept = {"sin": "cos(x)", "relu": "x > 0", "tanh": "1 - tanh(x)**2", "dot": "x W"}.get(op, "exp(x)")
    return kept.split()[::-1] if op == "dot" else [kept]


@passes
def measured(op):
    x = jnp.array([-0.7, 0.2, 0.9])
    if op == "dot":
        return ["W", "x"]
    names = {"cos(x)": jnp.cos(x), "exp(x)": jnp.exp(x), "x > 0": x > 0, "1 - tanh(x)**2": 1 - jnp.tanh(x) ** 2}
    function = jax.nn.relu if op == "relu" else getattr(jnp, op)
    kept = jax.tree.leaves(jax.vjp(function, x)[1])
    return [n for n, value in names.items() if any(a.dtype == value.dtype and np.allclose(a, value) for a in kept)]
