"""Wrong answers to count_residuals, each with the finding that must name its mistake."""

import jax
import jax.numpy as jnp
from sample_answers import Answers

import rematscope

WRONG = Answers()
fails_with = WRONG.fails_with
ALL = (
    "a product and relu, in bfloat16",
    "a number written in the function",
    "a chain of sines",
    "a scan",
    "one array given for two parameters",
    "one array twice in a dict",
)


def residuals(f, *args):
    return rematscope.trace(f, *args).residuals


def total(kept):
    return len(kept), sum(array.nbytes for array in kept)


@fails_with("wrong value", "arguments twice", "among the residuals already", cases=ALL)
def arguments_counted_twice(f, *args):
    kept = [*residuals(f, *args), *jax.tree.leaves(args)]
    return total(kept)


@fails_with("wrong value", "one iteration of the scan", "How often", cases=("a scan",))
def scan_length_forgotten(f, *args):
    kept = residuals(f, *args)
    loops = [e.params["length"] for e in jax.make_jaxpr(f)(*args).eqns if e.primitive.name == "scan"]
    return len(kept), sum(r.nbytes // (loops[0] if loops and r.shape[0] == loops[0] else 1) for r in kept)


@fails_with("wrong value", "numbers that are written", "3 * x", cases=("a number written in the function",))
def literals_ignored(f, *args):
    return total([residual for residual in residuals(f, *args) if residual.kind != "constant"])


@fails_with("wrong value", "Your answer is not what JAX does.", "residual_table show")
def only_computed_values(f, *args):
    return total([residual for residual in residuals(f, *args) if residual.kind == "computed"])


@fails_with("wrong value", "an argument that is not kept", "only traced", cases=("one array twice in a dict",))
def run_on_arrays(f, *args):
    return total(jax.tree.leaves(jax.vjp(f, *args)[1]))


@fails_with("wrong value", "counts rows of the table", "begins with 6 ×", cases=("a chain of sines",))
def rows_of_the_table(f, *args):
    table = rematscope.residual_table(f, *args)
    return len(table.rows), table.nbytes


@fails_with("wrong value", "counts f's output too", "Which two things", cases=ALL)
def leaves_of_the_pair(f, *args):
    shapes = jax.tree.leaves(jax.eval_shape(lambda *args: jax.vjp(f, *args), *args))
    return total([jnp.zeros(shape.shape, shape.dtype) for shape in shapes])


@fails_with("raises", "IndexError", "shape of a literal", cases=("a number written in the function",))
def first_dimension_of_each(f, *args):
    kept = jax.eval_shape(lambda *args: jax.tree.leaves(jax.vjp(f, *args)[1]), *args)
    return len(kept), sum(array.shape[0] * array.dtype.itemsize for array in kept)


@fails_with("raises", "abstract array", "is f an array?", cases=ALL)
def vjp_itself_traced(f, *args):
    return total(jax.tree.leaves(jax.eval_shape(jax.vjp, f, *args)[1]))


@fails_with("wrong value", "counts an array once", "only traced", cases=("one array given for two parameters",))
def different_arrays(f, *args):
    return total({id(array): array for array in jax.tree.leaves(jax.vjp(f, *args)[1])}.values())


@fails_with("wrong value", "4 bytes", "bfloat16 and a bool", cases=("a product and relu, in bfloat16",))
def four_bytes_each(f, *args):
    kept = residuals(f, *args)
    return len(kept), 4 * sum(jnp.zeros(r.shape).size for r in kept)


@fails_with("wrong value", "elements, not bytes", "How many bytes does one element take", cases=ALL)
def elements(f, *args):
    kept = residuals(f, *args)
    return len(kept), sum(jnp.zeros(r.shape).size for r in kept)


@fails_with("wrong value", "first argument alone", "jax.grad")
def first_argument(f, *args):
    return total(residuals(lambda first: f(first, *args[1:]), args[0]))


@fails_with("wrong value", "the bytes, then the number", cases=ALL)
def swapped(f, *args):
    return total(residuals(f, *args))[::-1]


@fails_with("wrong type", "(n, bytes), two integers", "What should count_residuals(f, *args) return?", cases=ALL)
def the_number_alone(f, *args):
    return len(residuals(f, *args))


@fails_with("wrong type", "a ResidualTable, which is no plain data", cases=ALL)
def the_table(f, *args):
    return rematscope.residual_table(f, *args)


@fails_with("wrong type", "two integers", ".0)", cases=ALL)
def as_floats(f, *args):
    n, nbytes = total(residuals(f, *args))
    return n, float(nbytes)


@fails_with("raises", "positional argument", "handed on")
def arguments_in_one(f, *args):
    return total(residuals(f, args))


@fails_with("wrong type", "returns None")
def printed(f, *args):
    len(residuals(f, *args))
