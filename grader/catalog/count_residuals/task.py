"""What an answer is asked."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from grader.exercises.spec import Integers, OneOf, Question

ranges = {
    "uses": OneOf(("none", "jit", "scan", "checkpoint")),
    "dtype": OneOf(("float32", "float16", "bfloat16", "int32")),
    "given": OneOf(("arrays", "dict", "list", "tuple")),
    "arrays": Integers(1, 6),
}
signature = "count_residuals(f, *args)"
returns = "(n, bytes), two integers"


def cases(rng):
    """Return functions that no page shows, with random widths and lengths: some that each detect a wrong way of
    counting, and some random ones.

    No loop has 4 iterations, because the bytes of one iteration would then equal the elements of all. If an answer
    might count one argument too many, the output is smaller than this argument, because the answer might count the
    output instead."""
    a, b, length = map(int, rng.permutation([3, 5, 6, 7, 9])[:3])

    places = jax.device_put(np.arange(b, dtype=np.int32) % length)
    half = jnp.bfloat16
    known = (
        (
            "a matrix-vector product and relu in bfloat16",
            "none",
            _activated,
            _make_ones(b, a, dtype=half),
            _make_ones(a, dtype=half),
        ),
        ("a function with literals", "none", _scaled, _make_ones(a)),
        ("a chain of sines", "none", _waves, _make_ones(b)),
        ("one array passed as three arguments", "none", _modulated, *[_make_ones(b)] * 3),
        ("three arguments", "none", _gated, _make_ones(b), _make_ones(b), _make_ones(b)),
        ("one array three times in a dict", "none", _wave, dict.fromkeys(("scale", "phase", "height"), _make_ones(b))),
        ("a scan", "scan", _deep, _make_ones(length, a, a), _make_ones(a)),
        ("a nested scan", "scan", _deeper, _make_ones(length, a), _make_ones(2, a)),
        ("rows of a table, by index", "none", _rows, _make_ones(length, a, dtype=jnp.float16), places),
        ("a list of floats and indices", "none", _taken_arguments, [_make_ones(length, a), places, _make_ones()]),
    )
    questions = [_make_question(name, uses, f, args) for name, uses, f, *args in known]
    given = [str(each) for each in rng.permutation(["dict", "list", "tuple", "arrays"])]
    for i, uses in enumerate(("jit", "scan", "checkpoint")):
        for j, dtype in enumerate(("float32", "float16", "bfloat16")):
            count = (1, 6, int(rng.integers(2, 6)))[(i + j) % 3]
            questions.append(_draw_question(rng, uses, dtype, count, given[(i - j) % 4], b, length))
    return tuple(questions)


def case(rng, uses, dtype, given, arrays):
    """Return a question on a function of a number of arrays. An array of integers is multiplied with the others."""
    # Other questions have small arrays. Each question has a number and a mask, so that a known mistake shows in many
    # questions.
    return _draw_question(rng, uses, dtype, arrays, given, 3_001, 9, ("0.5 * x", "relu"))


def fits(structure):
    """Return whether any argument can be differentiated, so that not all arguments are integers."""
    return structure["dtype"] != "int32" or structure["arrays"] > 1


def _make_question(name, uses, f, args):
    leaves = jax.tree.leaves(args)
    given = "arrays" if len(args) > 1 or not isinstance(args[0], dict | list | tuple) else type(args[0]).__name__
    dtypes = [str(leaf.dtype) for leaf in leaves]
    dtype = "int32" if "int32" in dtypes else dtypes[0]
    structure = {"uses": uses, "dtype": dtype, "given": given, "arrays": len(leaves)}
    return Question(name, (f, *args), structure=structure)


_STEPS = {
    "sin": jnp.sin,
    "tanh": jnp.tanh,
    "exp": jnp.exp,
    "relu": jax.nn.relu,
    "0.5 * x": lambda x: 0.5 * x,
    "x * x": lambda x: x * x,
}


def _draw_question(rng, uses, dtype, count, given, width, length, always=()):
    names = [*(list(_STEPS)[i] for i in rng.integers(0, len(_STEPS), rng.integers(1, 4))), *always]

    def steps(x, others):
        for name in names:
            x = _STEPS[name](x)
        for other in others:
            x = x * other
        return x

    def of_all(arrays):
        x, *others = jax.tree.leaves(arrays)
        if uses == "scan":
            return jnp.sum(jax.lax.scan(lambda x, _: (steps(x, others), None), x, length=length)[0])
        ways: dict[str, Callable] = {"none": steps, "jit": jax.jit(steps), "checkpoint": jax.checkpoint(steps)}
        whole = ways[uses]
        return jnp.sum(jnp.sin(whole(x, others)))

    first = jnp.float32 if dtype == "int32" else dtype
    arrays = [_make_ones(width, dtype=first), *(_make_ones(width, dtype=dtype) for _ in range(count - 1))]
    keys = [f"array_{i}" for i in range(count)]
    if given == "arrays":
        # One parameter per array, for answers that inspect the signature.
        f, args = eval(f"lambda {', '.join(keys)}: of_all([{', '.join(keys)}])", {"of_all": of_all}), arrays
    else:
        f, args = of_all, [_combine_functions(given, keys, arrays)]
    products = f" and {count - 1} multiplication{'s' * (count > 2)}" if count > 1 else ""
    called = "" if uses == "none" else f"{uses} of "
    return _make_question(f"{called}{', '.join(names)}{products} in {dtype}, arguments as {given}", uses, f, args)


def _make_ones(*shape, dtype=jnp.float32):
    return jax.device_put(np.ones(shape, dtype))  # jnp.ones would compile a program per shape in each answer's process


def _combine_functions(given, keys, arrays):
    if given == "dict":
        return dict(zip(keys, arrays, strict=True))
    return arrays if given == "list" else tuple(arrays)


def _activated(w, x):
    return jax.nn.relu(w @ x)


def _scaled(x):
    return jnp.sum(jnp.exp(-0.5 * jnp.tanh(x))) / 3


def _waves(x):
    for _ in range(5):
        x = jnp.sin(x)
    return jnp.sum(x)


def _deep(ws, x):
    return jax.lax.scan(lambda x, w: (jnp.tanh(w @ x), None), x, ws)[0]


def _deeper(ws, x):
    def inner(x, w):
        return jax.lax.scan(lambda x, _: (jnp.sin(x * w), None), x, length=3)[0], None

    return jnp.sum(jax.lax.scan(inner, x, ws)[0])


def _modulated(x, y, z):
    return jnp.sum(x * jnp.sin(y) * z)


def _gated(x, y, z):
    return jnp.sum(x * jnp.sin(y) * jnp.tanh(z))


def _wave(parameters):
    return _modulated(parameters["scale"], parameters["phase"], parameters["height"])


def _rows(table, places):
    return jnp.sum(jnp.tanh(table[places]))


def _taken_arguments(given):
    table, places, scale = given
    return scale * jnp.sum(jnp.exp(table[places]))


shown = None
