"""What an answer is tried on."""

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises import case_functions
from grader.exercises.spec import Case, Integers, OneOf

ranges = {
    "params": OneOf(("dict", "tuple")),
    "dtype": OneOf(("float32", "float16")),
    "r": Integers(1, 8),
    "k": Integers(1, 16),
    "called": OneOf(("directly", "jax.jit")),
}
signature = "accumulate(loss, params, batch, k)"


def cases(rng):
    """Return cases with many microbatches (an even and an odd number), with a single one, and with one row each."""
    return (
        # Large enough that the residuals or the gradients of all microbatches take far more memory than those of one.
        _make_case(8, 16, rng, width=WIDE),
        _make_case(
            int(rng.integers(3, 8)), int(rng.choice([9, 11, 13, 15])), rng, "tuple", width=WIDE, weightless=True
        ),
        _make_case(1, int(rng.integers(9, 17)), rng, dtype="float16", called="jax.jit"),
        _make_case(int(rng.integers(2, 8)), 1, rng, params="tuple"),
    )


def case(rng, params, dtype, r, k, called):
    """Return a case with these numbers of microbatches and rows. Cases that measure memory have wide rows."""
    inner = int(rng.integers(6, 9))
    wide = dtype == "float32" and 2 * k > most_activations(r, inner) + 2
    return _make_case(
        r,
        k,
        rng,
        params,
        dtype,
        called,
        inner=inner,
        width=WIDE if wide else None,
        weightless=k > 2 and bool(rng.integers(2)),
    )


WIDE = 64  # with fewer columns, other values dominate the memory


def most_activations(r, inner):
    """As many microbatches' activations may be in memory, of r rows each: some, and what the gradients take."""
    return 6 + round(2.5 * inner / r)


def _make_case(
    r, k, rng, params="dict", dtype="float32", called="directly", inner=None, width=None, weightless=False, name=None
):
    inner, width = inner or int(rng.integers(6, 9)), width or int(rng.integers(9, 13))
    sizes = rng.uniform(0.5, 1.5, (2, r * k, inner)) * rng.choice([-1, 1], (2, r * k, inner))
    # Microbatches have different weights.
    weights = rng.integers(1, 3, (k, r)) * (1 + 2 * (np.arange(k)[:, None] % 2))
    if weightless:
        weights[[0, -1]] = 0  # a running mean starts with a weight of 0, and the last microbatch adds nothing
    # NumPy arrays, because importing this module must not start JAX.
    batch = *(size.astype(dtype) for size in sizes), weights.reshape(-1).astype(dtype)

    def made(*matrices):
        return tuple(matrices) if params == "tuple" else dict(zip(("w1", "w2"), matrices, strict=True))

    def of_rows(w1, w2, batch, name):
        x, y, weights = batch
        hidden = name(jnp.tanh(x @ w1), "all microbatches' activations")
        # The rows of a microbatch interact, so it matters which rows `loss` gets together.
        together = r if len(x) % r == 0 else len(x)
        found = (hidden @ w2).reshape(-1, together, inner)
        errors = (found + jnp.mean(found, axis=1, keepdims=True)).reshape(-1, inner) - y
        return jnp.sum(weights * jnp.mean(errors**2, axis=-1)), jnp.sum(weights)

    def loss(params, batch):
        """Return the weighted sum of these rows' losses, and the sum of their weights."""
        w1, w2 = (params[0], params[1]) if isinstance(params, tuple) else (params["w1"], params["w2"])
        return of_rows(w1, w2, batch, lambda value, called: value)

    def function(w1, w2, *, name=lambda value, called: value):
        total, weight = of_rows(w1, w2, batch, name)
        if k > 1:
            name(jnp.tanh(batch[0][:r] @ w1), "one microbatch's activations")
        return name(total / weight, "the result")

    def apply(answer):
        """Return a function that has the answer's value, and whose gradients are the gradients that the answer
        returned."""
        with jax.ensure_compile_time_eval():
            own = tuple(map(jnp.asarray, batch))

        @jax.custom_vjp
        def value(w1, w2):
            return forward(w1, w2)[0]

        def forward(w1, w2):
            mean, gradients = _checked_pair(answer(loss, made(w1, w2), own, k), made(w1, w2))
            # An answer may add up float16 losses in float32, as training in low precision does.
            return jax.tree.map(lambda sum: sum.astype(dtype) if _is_float(sum) else sum, mean), gradients

        value.defvjp(forward, lambda gradients, ct: tuple(ct * each for each in jax.tree.leaves(gradients)))
        return value

    what = f"{k} microbatch{'es' * (k > 1)} of {r} row{'s' * (r > 1)}"
    return Case(
        name or what + ", the first and last of weight 0" * weightless + case_functions.where(called, dtype),
        (jax.ShapeDtypeStruct((inner, width), dtype), jax.ShapeDtypeStruct((width, inner), dtype)),
        transform=case_functions.transform(called),
        apply=apply,
        function=function,
        structure={"params": params, "dtype": dtype, "r": r, "k": k, "called": called},
    )


def _is_float(value):
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jnp.floating)


def _checked_pair(returned, params):
    """Return an answer's result if it consists of a number and of gradients with the structure of the parameters;
    otherwise, refuse it."""
    if not isinstance(returned, tuple) or len(returned) != 2:
        what = f"{len(returned)} things" if isinstance(returned, tuple) else f"a {type(returned).__name__}"
        raise TypeError(f"accumulate returned {what} instead of a pair: the value and the gradients.")
    wanted, got = str(jax.tree.structure(params)), str(jax.tree.structure(returned[1]))
    if wanted != got:
        raise TypeError(f"accumulate returned gradients with the structure {got}; params has the structure {wanted}.")
    for gradient, parameter in zip(jax.tree.leaves(returned[1]), jax.tree.leaves(params), strict=True):
        if jnp.shape(gradient) != parameter.shape:
            shapes = f"{list(jnp.shape(gradient))}; the parameter has {list(parameter.shape)}"
            raise TypeError(f"accumulate returned a gradient with the shape {shapes}.")
        if jnp.result_type(gradient) != parameter.dtype:
            dtypes = f"{jnp.result_type(gradient)}; the parameter has {parameter.dtype}"
            raise TypeError(f"accumulate returned a gradient with the dtype {dtypes}.")
    return returned


shown = _make_case(16, 8, np.random.default_rng(0), width=256, name="for 8 microbatches of 16 rows")
