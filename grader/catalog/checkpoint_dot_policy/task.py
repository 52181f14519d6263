"""What an answer is tried on."""

import jax
import jax.numpy as jnp

from grader.exercises import case_functions
from grader.exercises.spec import Case, Integers, OneOf

ranges = {
    "d": Integers(1, 32),
    "N": Integers(1, 600),
    "dtype": OneOf(("float32", "float16", "bfloat16")),
    "mapped": OneOf(("none", "one by one", "two", "all")),
    "called": OneOf(("directly", "jax.jit")),
}
signature = "checkpoint_dot_policy(w1, w2, x)"
_ARRAYS = "w1", "w2", "x"


def cases(rng):
    """Return cases with random shapes, because an answer made for one shape must fail."""
    widths, rows = iter(2 * rng.integers(4, 16, 2) + 1), iter(2 * rng.integers(5, 17, 2))  # all different
    pair, inner = ([("x", "w1"), ("x", "w2"), ("w1", "w2")][number] for number in rng.integers(3, size=2))
    axes = {name: int(rng.integers(2)) for name in pair}
    # Mapped over x's last axis, so that the matmul no longer contracts over the last axis.
    one_by_one = [(2, {str(name): 2 if name == "x" else 0}) for name in rng.permutation(["x", "w1"])]
    all_of_them = [(2, dict.fromkeys(names, 0)) for names in (_ARRAYS, inner)]
    return (
        # So many rows that the matmuls are larger than on the page, because a wrong policy may depend on the size.
        _make_case("float32", 600, 32, "float32", "none"),
        # A wrong policy may count dimensions. An argument that is mapped alone adds a dimension to the matmul, but no
        # batch dimension, even if x and w1 each have one.
        _make_case("bfloat16 under vmap over x, and over w1", next(rows), 1, "bfloat16", "one by one", *one_by_one),
        # The first matmul has two batch dimensions, and the second matmul has one.
        _make_case("vmap over all three arguments", next(rows), next(widths), "float32", "all", *all_of_them),
        # A batch of one is a batch dimension too, and it may not be the first one.
        _make_case("float16 under vmap over two of the arguments", 1, next(widths), "float16", "two", (1, axes)),
    )


def fits(structure):
    """Return whether the sum of squares is finite in the case's dtype, which limits float16 to few squares."""
    return structure["N"] * structure["d"] <= 4096 or structure["dtype"] == "float32"


def case(rng, d, N, dtype, mapped, called):
    """Return a case with arrays of these sizes, under a number of `jax.vmap`s."""
    vmaps = {
        "one by one": [(2, {name: 0}) for name in ("x", "w1")],
        "two": [(2, dict.fromkeys(("x", "w1"), 0))],
        "all": [(2, dict.fromkeys(_ARRAYS, 0))],
    }.get(mapped, [])
    what = {"none": "", "one by one": "x, and over w1", "two": "x and w1", "all": "all three arguments"}[mapped]
    return _make_case(f"{dtype}{' under vmap over ' * bool(what)}{what}", N, d, dtype, mapped, *vmaps, called=called)


def _make_case(name, rows, width, dtype, mapped, *vmaps, called=None):
    """Return a case under these `jax.vmap`s, which are around jax.jit if all arguments are mapped. Each `jax.vmap`, the
    outermost first, is given by its size and by its axis of each argument."""

    def transform(answer):
        function = case_functions.transform(called)(answer)
        for _, axes in reversed(vmaps):
            function = jax.vmap(function, in_axes=tuple(axes.get(name) for name in _ARRAYS))
        return function

    rows, width = int(rows), int(width)
    called = called or ("jax.jit" if mapped == "all" else "directly")
    shapes = {"w1": (width, width), "w2": (width, width), "x": (rows, width)}
    for size, axes in reversed(vmaps):
        for argument, axis in axes.items():
            shapes[argument] = (*shapes[argument][:axis], size, *shapes[argument][axis:])
    return Case(
        name + (", jax.jit inside" if called == "jax.jit" else ""),
        tuple(jax.ShapeDtypeStruct(shapes[name], dtype) for name in _ARRAYS),
        transform=transform,
        structure={
            "d": width,
            "N": rows,
            "dtype": dtype,
            "mapped": mapped,
            "called": called,
            "vmaps": [axes for _, axes in vmaps],
        },
    )


shown = Case(
    "at the page's shapes", tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((64, 64), (64, 64), (256, 64)))
)
