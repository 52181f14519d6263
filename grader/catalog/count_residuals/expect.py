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
    kept = _residual_shapes(f, *args)
    return len(kept), _total_bytes(kept)


def _residual_shapes(f, *args):
    # In a trace, all arguments are different values. On arrays, jax.vjp treats two arguments that are the same array as
    # one.
    leaves, structure = jax.tree.flatten(args)
    return _kept_for(f, structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves))


@functools.lru_cache(maxsize=128)  # most mistakes call it again
def _kept_for(f, structure, kinds):
    args = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(*kind) for kind in kinds])
    return jax.eval_shape(lambda *args: jax.tree.leaves(jax.vjp(f, *args)[1]), *args)


def _total_bytes(arrays) -> int:
    return sum(array.size * array.dtype.itemsize for array in arrays)


def _without_literals(f, *args):
    kept = [array for array in _residual_shapes(f, *args) if array.shape]
    return len(kept), _total_bytes(kept)


def _one_iteration(f, *args):
    lengths = {e.params["length"] for e in jax.make_jaxpr(f)(*args).eqns if e.primitive.name == "scan"}
    kept = _residual_shapes(f, *args)
    return len(kept), sum(_total_bytes([a]) // (a.shape[0] if a.shape and a.shape[0] in lengths else 1) for a in kept)


def _arguments_again(f, *args):
    n, nbytes = reference(f, *args)
    given = jax.tree.leaves(args)
    return n + len(given), nbytes + _total_bytes(given)


def _output_too(f, *args):
    kept = jax.eval_shape(lambda *args: jax.tree.leaves(jax.vjp(f, *args)), *args)
    return len(kept), _total_bytes(kept)


def _count_rows(f, *args):
    table = rematscope.residual_table(f, *args)
    return len(table.rows), table.nbytes


def _run_on_arrays(f, *args):
    kept = jax.tree.leaves(jax.vjp(f, *args)[1])
    return len(kept), _total_bytes(kept)


def _different_arrays(f, *args):
    kept = list({id(array): array for array in jax.tree.leaves(jax.vjp(f, *args)[1])}.values())
    return len(kept), _total_bytes(kept)


def _that_are(keep):
    """Return a function that counts only some of the residuals."""

    def counts(f, *args):
        kept = [array for array in _residual_shapes(f, *args) if keep(array)]
        return len(kept), _total_bytes(kept)

    return counts


def _of_kinds(*kinds):
    def counts(f, *args):
        kept = [residual for residual in rematscope.trace(f, *args).residuals if residual.kind in kinds]
        return len(kept), sum(residual.nbytes for residual in kept)

    return counts


def _in_bytes(itemsize):
    """Return a function that counts right, but takes the bytes per element from `itemsize(dtype, args)`."""
    return lambda f, *args: (
        reference(f, *args)[0],
        sum(a.size * itemsize(a.dtype, args) for a in _residual_shapes(f, *args)),
    )


def _each_kind_once(f, *args):
    kept = {(array.shape, array.dtype): array for array in _residual_shapes(f, *args)}
    return len(kept), _total_bytes(kept.values())


mistakes = (
    mistake("leaves_out_literals_function", _without_literals),
    mistake("counts_bytes_one_iteration_scan", _one_iteration),
    mistake("counts_arguments_twice_counts_arguments", _arguments_again),
    mistake("counts_output_f", _output_too),
    mistake("counts_rows_table_several_residuals", _count_rows),
    mistake("counts_argument_not_saved_same", _run_on_arrays),
    mistake("counts_array_once_although_passed", _different_arrays),
    mistake(
        "counts_only_gradient_respect_first",
        lambda f, *args: reference(lambda first: f(first, *args[1:]), args[0]),
    ),
    mistake(
        "counts_elements_instead_bytes",
        lambda f, *args: (reference(f, *args)[0], int(sum(np.prod(a.shape) for a in _residual_shapes(f, *args)))),
    ),
    mistake(
        "counts_4_bytes_per_element",
        lambda f, *args: (reference(f, *args)[0], 4 * int(sum(np.prod(a.shape) for a in _residual_shapes(f, *args)))),
    ),
    mistake("counts_4_bytes_per_float16", _in_bytes(lambda dtype, _: 4 if dtype == np.float16 else dtype.itemsize)),
    mistake("uses_first_argument_dtype_every", _in_bytes(lambda _, args: jax.tree.leaves(args)[0].dtype.itemsize)),
    *(
        mistake("leaves_out_residuals_not_floats", _that_are(floats))
        for floats in (
            lambda array: not np.issubdtype(array.dtype, np.integer),
            lambda array: not np.issubdtype(array.dtype, np.integer) and array.dtype != bool,
            lambda array: array.dtype != bool,
        )
    ),
    *(mistake("leaves_out_arguments_saved", _of_kinds(*kinds)) for kinds in (("computed", "constant"), ("computed",))),
    mistake("counts_residuals_same_shape_dtype", _each_kind_once),
    mistake("returns_bytes_first_number", lambda f, *args: reference(f, *args)[::-1]),
)
