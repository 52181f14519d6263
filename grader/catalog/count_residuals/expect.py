"""What is expected of an answer; only the judge reads this."""

import functools

import jax
import numpy as np

import rematscope
from grader.exercises.feedback import read_feedback

feedback = read_feedback(__file__)
mistake = feedback.mistake


def reference(f, *args):
    """Return the number of residuals and their bytes: the leaves of the pullback of `jax.vjp` when `f` is traced."""
    return _count(_residual_shapes(f, *args))


def _residual_shapes(f, *args):
    # In a trace, all arguments are different values. On arrays, jax.vjp treats two arguments that are the same array as
    # one.
    leaves, structure = jax.tree.flatten(args)
    return _trace_residuals(f, structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves))


@functools.lru_cache(maxsize=128)  # most mistakes call it again
def _trace_residuals(f, structure, kinds):
    args = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(*kind) for kind in kinds])
    return jax.eval_shape(lambda *args: jax.tree.leaves(jax.vjp(f, *args)[1]), *args)


def _count(arrays) -> tuple[int, int]:
    """Return the number of arrays and their bytes."""
    return len(arrays), sum(array.size * array.dtype.itemsize for array in arrays)


def _count_one_iteration(f, *args):
    lengths = {e.params["length"] for e in jax.make_jaxpr(f)(*args).eqns if e.primitive.name == "scan"}
    kept = _residual_shapes(f, *args)
    parts = (_count([a])[1] // (a.shape[0] if a.shape and a.shape[0] in lengths else 1) for a in kept)
    return len(kept), sum(parts)


def _count_rows(f, *args):
    table = rematscope.residual_table(f, *args)
    return len(table.rows), table.nbytes


def _run_on_arrays(f, *args):
    return jax.tree.leaves(jax.vjp(f, *args)[1])


def _count_if(keep):
    """Return a function that counts only some of the residuals."""
    return lambda f, *args: _count([array for array in _residual_shapes(f, *args) if keep(array)])


def _count_kinds(*kinds):
    def counts(f, *args):
        kept = [residual for residual in rematscope.trace(f, *args).residuals if residual.kind in kinds]
        return len(kept), sum(residual.nbytes for residual in kept)

    return counts


def _count_with_itemsize(itemsize):
    """Return a function that counts right, but takes the bytes per element from `itemsize(dtype, args)`."""
    return lambda f, *args: (
        reference(f, *args)[0],
        sum(a.size * itemsize(a.dtype, args) for a in _residual_shapes(f, *args)),
    )


mistakes = (
    mistake("without_literals", _count_if(lambda array: array.shape)),
    mistake("one_iteration", _count_one_iteration),
    mistake("arguments_twice", lambda f, *args: _count([*_residual_shapes(f, *args), *jax.tree.leaves(args)])),
    mistake(
        "output_too", lambda f, *args: _count(jax.eval_shape(lambda *args: jax.tree.leaves(jax.vjp(f, *args)), *args))
    ),
    mistake("rows_of_table", _count_rows),
    mistake("on_arrays", lambda f, *args: _count(_run_on_arrays(f, *args))),
    mistake("each_array_once", lambda f, *args: _count({id(a): a for a in _run_on_arrays(f, *args)}.values())),
    mistake(
        "gradient_of_first_argument",
        lambda f, *args: reference(lambda first: f(first, *args[1:]), args[0]),
    ),
    mistake("elements_not_bytes", _count_with_itemsize(lambda *_: 1)),
    mistake("four_bytes_per_element", _count_with_itemsize(lambda *_: 4)),
    mistake(
        "four_bytes_per_float16", _count_with_itemsize(lambda dtype, _: 4 if dtype == np.float16 else dtype.itemsize)
    ),
    mistake("dtype_of_first_argument", _count_with_itemsize(lambda _, args: jax.tree.leaves(args)[0].dtype.itemsize)),
    *(
        mistake("floats_only", _count_if(floats))
        for floats in (
            lambda array: not np.issubdtype(array.dtype, np.integer),
            lambda array: not np.issubdtype(array.dtype, np.integer) and array.dtype != bool,
            lambda array: array.dtype != bool,
        )
    ),
    *(mistake("without_arguments", _count_kinds(*kinds)) for kinds in (("computed", "constant"), ("computed",))),
    mistake(
        "each_type_once",
        lambda f, *args: _count({(a.shape, a.dtype): a for a in _residual_shapes(f, *args)}.values()),
    ),
    mistake("bytes_first", lambda f, *args: reference(f, *args)[::-1]),
)
