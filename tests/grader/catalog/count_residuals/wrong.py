"""Wrong answers to count_residuals, each with the finding that must name its mistake."""

import jax
import jax.numpy as jnp
from sample_answers import Answers

import rematscope

WRONG = Answers()
fails_with = WRONG.fails_with


def always(**_):
    return True


def residuals(f, *args):
    return rematscope.trace(f, *args).residuals


def total(kept):
    return len(kept), sum(array.nbytes for array in kept)


@fails_with(
    "wrong value", "arguments twice", "already among the residuals", hint="print_leaves_two_results_jax", where=always
)
def arguments_counted_twice(f, *args):
    kept = [*residuals(f, *args), *jax.tree.leaves(args)]
    return total(kept)


@fails_with(
    "wrong value",
    "one iteration of the scan",
    "How many times",
    hint="scan_ten_iterations_saves_one",
    where=lambda uses, **_: uses == "scan",
)
def scan_length_forgotten(f, *args):
    kept = residuals(f, *args)
    loops = [e.params["length"] for e in jax.make_jaxpr(f)(*args).eqns if e.primitive.name == "scan"]
    return len(kept), sum(r.nbytes // (loops[0] if loops and r.shape[:1] == (loops[0],) else 1) for r in kept)


@fails_with("wrong value", "leaves out the literals", "3 * x", hint="take_function_most_like_one")
def literals_ignored(f, *args):
    return total([residual for residual in residuals(f, *args) if residual.kind != "constant"])


@fails_with("wrong value", "leaves out arguments", "among the residuals", hint="take_function_most_like_one")
def only_computed_values(f, *args):
    return total([residual for residual in residuals(f, *args) if residual.kind == "computed"])


@fails_with("wrong value", "an argument that is not saved", "only traced", hint="finding_about_one_array_passed")
def run_on_arrays(f, *args):
    return total(jax.tree.leaves(jax.vjp(f, *args)[1]))


@fails_with("wrong value", "counts rows of the table", "begins with 6 ×", hint="six_sines_saves_six_values")
def rows_of_the_table(f, *args):
    table = rematscope.residual_table(f, *args)
    return len(table.rows), table.nbytes


@fails_with(
    "wrong value", "also counts the output of f", "Which two results", hint="print_leaves_two_results_jax", where=always
)
def leaves_of_the_pair(f, *args):
    shapes = jax.tree.leaves(jax.eval_shape(lambda *args: jax.vjp(f, *args), *args))
    return total([jnp.zeros(shape.shape, shape.dtype) for shape in shapes])


@fails_with("raises", "IndexError", "shape of a literal", hint="shape_literal_many_elements_attribute")
def first_dimension_of_each(f, *args):
    kept = jax.eval_shape(lambda *args: jax.tree.leaves(jax.vjp(f, *args)[1]), *args)
    return len(kept), sum(array.shape[0] * array.dtype.itemsize for array in kept)


@fails_with("raises", "abstract array", "Is `f` an array?", hint="jax_eval_shape_function_arrays", where=always)
def vjp_itself_traced(f, *args):
    return total(jax.tree.leaves(jax.eval_shape(jax.vjp, f, *args)[1]))


@fails_with("wrong value", "counts an array only once", "only traced", hint="finding_about_one_array_passed")
def different_arrays(f, *args):
    return total({id(array): array for array in jax.tree.leaves(jax.vjp(f, *args)[1])}.values())


@fails_with("wrong value", "4 bytes", "how many does a bool element take", hint="print_shape_dtype_leaf_function")
def four_bytes_each(f, *args):
    kept = residuals(f, *args)
    return len(kept), 4 * sum(jnp.zeros(r.shape).size for r in kept)


@fails_with(
    "wrong value",
    "elements instead of bytes",
    "How many bytes does one element take",
    hint="print_shape_dtype_leaf_function",
    where=always,
)
def elements(f, *args):
    kept = residuals(f, *args)
    return len(kept), sum(jnp.zeros(r.shape).size for r in kept)


@fails_with("wrong value", "respect to the first argument", "jax.grad", hint="compare_jax_grad_f_jax")
def first_argument(f, *args):
    return total(residuals(lambda first: f(first, *args[1:]), args[0]))


@fails_with("wrong value", "the bytes first, then the number", hint="asks_pair_n_bytes_two", where=always)
def swapped(f, *args):
    return total(residuals(f, *args))[::-1]


@fails_with(
    "wrong type",
    "(n, bytes), two integers",
    "What should count_residuals(f, *args) return?",
    hint="return_pair_two_plain_integers",
    where=always,
)
def the_number_alone(f, *args):
    return len(residuals(f, *args))


@fails_with("wrong type", "a ResidualTable, not plain", hint="return_pair_two_plain_integers", where=always)
def the_table(f, *args):
    return rematscope.residual_table(f, *args)


@fails_with("wrong type", "two integers", ".0)", hint="return_pair_two_plain_integers", where=always)
def as_floats(f, *args):
    n, nbytes = total(residuals(f, *args))
    return n, float(nbytes)


@fails_with("raises", "positional argument", "pass all of them", hint="let_args_tuple_two_arrays")
def arguments_in_one(f, *args):
    return total(residuals(f, args))


@fails_with("wrong type", "returns None", hint="return_pair_two_plain_integers")
def printed(f, *args):
    len(residuals(f, *args))


def shapes(f, *args):
    return jax.eval_shape(lambda *args: jax.tree.leaves(jax.vjp(f, *args)[1]), *args)


def nbytes(kept):
    return sum(array.size * array.dtype.itemsize for array in kept)


def some(name, kind, *words, keep, where=None):
    """Wrong because it counts only the residuals for which `keep(array, args)` is True."""

    def answer(f, *args):
        kept = [array for array in shapes(f, *args) if keep(array, args)]
        return len(kept), nbytes(kept)

    answer.__name__ = name
    fails_with(kind, *words, hint="take_function_most_like_one", where=where)(answer)


some("no_integers", "wrong value", "not floats", "a mask", keep=lambda a, _: not jnp.issubdtype(a.dtype, jnp.integer))


@fails_with("wrong value", "4 bytes per float16", "lists the element size", hint="print_shape_dtype_leaf_function")
def bytes_by_heart(f, *args):
    sizes = {"float32": 4, "bfloat16": 2, "bool": 1}
    kept = shapes(f, *args)
    return len(kept), sum(array.size * sizes.get(str(array.dtype), 4) for array in kept)


@fails_with("wrong value", "first argument's dtype", "more than one dtype", hint="print_shape_dtype_leaf_function")
def one_dtype_for_all(f, *args):
    kept = shapes(f, *args)
    return len(kept), sum(array.size for array in kept) * jax.tree.leaves(args)[0].dtype.itemsize


@fails_with("wrong value", "of the same shape and dtype only once", "count all six", hint="take_function_most_like_one")
def each_kind_once(f, *args):
    kept = {(array.shape, str(array.dtype)): array for array in shapes(f, *args)}
    return len(kept), nbytes(kept.values())


def but(name, where):
    """Too many values, for some functions and arguments alone."""

    def answer(f, *args):
        kept, leaves = shapes(f, *args), jax.tree.leaves(args)
        given = "arrays" if len(args) > 1 or not isinstance(args[0], dict | list | tuple) else type(args[0]).__name__
        primitives = {equation.primitive.name for equation in jax.make_jaxpr(f)(*args).eqns}
        uses = next((name for name in ("jit", "scan") if name in primitives), None)
        # In the next rematerialization, its name is `call_hi_primitive`.
        uses = uses or ("checkpoint" if any("remat" in name or "hi_" in name for name in primitives) else "none")
        dtypes = [str(leaf.dtype) for leaf in leaves]
        dtype = "int32" if "int32" in dtypes else dtypes[0]
        drawn = {"uses": uses, "dtype": dtype, "given": given, "arrays": len(leaves)}
        return len(kept) + 100 * bool(where(**drawn)), nbytes(kept)

    answer.__name__ = name
    fails_with(
        "wrong value", "the number and the size of f's residuals", hint="look_case_finding_names_items", where=where
    )(answer)


for kind in ("float32", "float16", "bfloat16"):
    but(f"too_many_in_{kind}", lambda dtype, kind=kind, **_: dtype == kind)
for kind in ("arrays", "dict", "list", "tuple"):
    but(f"too_many_of_{kind}", lambda given, kind=kind, **_: given == kind)
but("too_many_of_one_array", lambda arrays, **_: arrays == 1)
but("too_many_of_some_arrays", lambda arrays, **_: 1 < arrays < 6)

for kind in ("none", "jit", "checkpoint"):
    but(f"too_many_where_{kind}_is_used", lambda uses, kind=kind, **_: uses == kind)


@fails_with("raises", "scalar-output", "accepts every `f`", hint="mini_example_calls_jax_vjp")
def gradient_traced(f, *args):
    return total(jax.tree.leaves(jax.eval_shape(jax.grad(f), *args)))


@fails_with("raises", "no attribute 'nbytes'", "compute the number of bytes from these", hint="many_elements_f32_10_3")
def bytes_of_what_stands_for_an_array(f, *args):
    return total(jax.tree.leaves(jax.eval_shape(lambda *args: jax.vjp(f, *args)[1], *args)))
