"""What is expected of an answer; only the judge reads this."""

import functools

import jax
import numpy as np

import rematscope
from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import Mistake


def reference(f, *args):
    """(number of residuals, their bytes): the leaves of what `jax.vjp` returns when it traces `f`."""
    kept = _kept(f, *args)
    return len(kept), _nbytes(kept)


def _kept(f, *args):
    # Traced, each argument is a value of its own. Run on arrays, jax.vjp tells arguments apart by the arrays they are.
    leaves, structure = jax.tree.flatten(args)
    return _kept_for(f, structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves))


@functools.lru_cache(maxsize=128)  # most mistakes ask it again
def _kept_for(f, structure, kinds):
    args = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(*kind) for kind in kinds])
    return jax.eval_shape(lambda *args: jax.tree.leaves(jax.vjp(f, *args)[1]), *args)


def _nbytes(arrays) -> int:
    return sum(array.size * array.dtype.itemsize for array in arrays)


def _without_literals(f, *args):
    kept = [array for array in _kept(f, *args) if array.shape]
    return len(kept), _nbytes(kept)


def _one_iteration(f, *args):
    lengths = {e.params["length"] for e in jax.make_jaxpr(f)(*args).eqns if e.primitive.name == "scan"}
    kept = _kept(f, *args)
    return len(kept), sum(_nbytes([a]) // (a.shape[0] if a.shape and a.shape[0] in lengths else 1) for a in kept)


def _arguments_again(f, *args):
    n, nbytes = reference(f, *args)
    given = jax.tree.leaves(args)
    return n + len(given), nbytes + _nbytes(given)


def _output_too(f, *args):
    kept = jax.eval_shape(lambda *args: jax.tree.leaves(jax.vjp(f, *args)), *args)
    return len(kept), _nbytes(kept)


def _rows(f, *args):
    table = rematscope.residual_table(f, *args)
    return len(table.rows), table.nbytes


def _run(f, *args):
    kept = jax.tree.leaves(jax.vjp(f, *args)[1])
    return len(kept), _nbytes(kept)


def _different_arrays(f, *args):
    kept = list({id(array): array for array in jax.tree.leaves(jax.vjp(f, *args)[1])}.values())
    return len(kept), _nbytes(kept)


def _first_argument(f, *args):
    return reference(lambda first: f(first, *args[1:]), args[0])


def _that_are(keep):
    """Counts only some of what is kept."""

    def counts(f, *args):
        kept = [array for array in _kept(f, *args) if keep(array)]
        return len(kept), _nbytes(kept)

    return counts


def _of_kinds(*kinds):
    def counts(f, *args):
        kept = [residual for residual in rematscope.trace(f, *args).residuals if residual.kind in kinds]
        return len(kept), sum(residual.nbytes for residual in kept)

    return counts


def _in_bytes(itemsize):
    """The right number, and the bytes of elements that take what `itemsize(dtype, args)` says."""
    return lambda f, *args: (reference(f, *args)[0], sum(a.size * itemsize(a.dtype, args) for a in _kept(f, *args)))


def _each_kind_once(f, *args):
    kept = {(array.shape, array.dtype): array for array in _kept(f, *args)}
    return len(kept), _nbytes(kept.values())


_SEEN_APART = "If f is only traced, with jax.eval_shape or by rematscope, what does it know of the arrays behind its "
_SEEN_APART += "arguments?"

mistakes = (
    Mistake(
        "it leaves out the numbers that are written in the function",
        _without_literals,
        "To send a gradient through 3 * x, which number must the backward pass know?",
    ),
    Mistake(
        "it counts one iteration of the scan",
        _one_iteration,
        "How often does the loop's body run, and does every iteration keep its own?",
    ),
    Mistake(
        "it counts arguments twice, or those too that are not kept",
        _arguments_again,
        "Are arguments that the backward pass needs among the residuals already?",
    ),
    Mistake(
        "it counts f's output too",
        _output_too,
        "Which two things does jax.vjp return, and which of them holds what is kept?",
    ),
    Mistake(
        "it counts rows of the table, and residuals that are alike share one",
        _rows,
        "How many values is a row that begins with 6 ×?",
    ),
    Mistake(
        "it counts an argument that is not kept, but is the same array as one that is: run on arrays, jax.vjp takes "
        "the one for the other",
        _run,
        _SEEN_APART,
    ),
    Mistake("it counts an array once that is given for two parameters", _different_arrays, _SEEN_APART),
    Mistake(
        "it is right for the gradient of the first argument alone",
        _first_argument,
        "With respect to which arguments does jax.vjp differentiate, and with respect to which jax.grad?",
    ),
    Mistake(
        "it counts elements, not bytes",
        lambda f, *args: (reference(f, *args)[0], int(sum(np.prod(a.shape) for a in _kept(f, *args)))),
        "How many bytes does one element take, and where do arrays tell?",
    ),
    Mistake(
        "it takes every element for 4 bytes",
        lambda f, *args: (reference(f, *args)[0], 4 * int(sum(np.prod(a.shape) for a in _kept(f, *args)))),
        "How many bytes do a bfloat16 and a bool take?",
    ),
    Mistake(
        "it takes a float16 for 4 bytes",
        _in_bytes(lambda dtype, _: 4 if dtype == np.float16 else dtype.itemsize),
        "Which dtypes do you know by heart, and what does array.dtype.itemsize say of the others?",
    ),
    Mistake(
        "it takes every element for one of the first argument's dtype",
        _in_bytes(lambda _, args: jax.tree.leaves(args)[0].dtype.itemsize),
        "Can the residuals of one function be of more than one dtype?",
    ),
    *(
        Mistake(
            "it leaves out values that are not floats",
            _that_are(floats),
            "Does the backward pass need a mask, or the places where something was taken from, though no gradient "
            "flows through them?",
        )
        for floats in (
            lambda array: not np.issubdtype(array.dtype, np.integer),
            lambda array: not np.issubdtype(array.dtype, np.integer) and array.dtype != bool,
            lambda array: array.dtype != bool,
        )
    ),
    *(
        Mistake(
            "it leaves out arguments that are kept",
            _of_kinds(*kinds),
            "Does the backward pass need some of the arguments, and are these among the residuals then?",
        )
        for kinds in (("computed", "constant"), ("computed",))
    ),
    Mistake(
        "it counts those once that have one shape and dtype",
        _each_kind_once,
        "Six sines of one shape are kept: does your answer count them as often as there are?",
    ),
    Mistake(
        "these are the bytes, then the number",
        lambda f, *args: reference(f, *args)[::-1],
        "Which of the two does the page ask for first?",
    ),
)

compared_with = "what JAX does"
otherwise = "What does rematscope's residual_table show for something of this kind?"

error_questions = (
    (
        r"scalar-output",
        "jax.grad wants a function that returns one number, and f may return any array: which function of the page "
        "takes f all the same?",
    ),
    (
        r"ShapeDtypeStruct' object has no attribute",
        "What stands for an array has its shape, size and dtype: how do these give the array's bytes?",
    ),
    (r"^IndexError", "What is the shape of a literal, and does that line work for it?"),
    (r"as an abstract array", "jax.eval_shape hands on shapes in place of arrays: is f an array?"),
    (r"[Tt]racer|[Cc]oncret", "What does your answer do with arrays that needs their numbers, not only their shapes?"),
    (r"positional argument", "How many arguments does f take, and are they all handed on to it?"),
)

hints = (
    Hint(
        "Which of the two things that `jax.vjp` returns must bring the residuals along? How do you take it apart?",
    ),
    Hint(
        "Does your answer return two plain integers, first how many values there are, then their bytes?",
        after=("wrong type",),
    ),
    Hint(
        "When one array is given twice: what would your answer do if it never saw an array, only shapes and dtypes? "
        "Which function on this page runs another one in that way?",
        after=("wrong value",),
        says="only traced",
    ),
    Hint(
        "`jax.eval_shape(function, *arrays)` takes a function of arrays. Which inner function of `*args` could call "
        "`jax.vjp(f, *args)`, with an `f` that it knows from outside?",
        after=("raises",),
        says="is f an array",
    ),
    Hint(
        "Look at the case that the finding names. Which kind of value on this page's list of what counts is in it?",
        after=("wrong value",),
    ),
    Hint(
        "Is there another way? `residual_table(f, *args)` has `nbytes`. Residuals that are alike share a row of it: "
        "how many `values` does a row have?"
    ),
    Hint(
        "Nearly the answer: write an inner function of `*args` that calls `jax.vjp(f, *args)` and returns the leaves "
        "of the second result. What does `jax.eval_shape` of that function give, and how many bytes is each of these?"
    ),
    *(
        Hint(
            "Print shape and dtype of each leaf, for a function of two dtypes. Where in your answer do bytes come "
            "from, and what does `array.dtype.itemsize` say?",
            after=("wrong value",),
            says=says,
        )
        for says in ("4 bytes", "elements, not bytes", "first argument's dtype")
    ),
    *(
        Hint(
            "Print the leaves of `jax.vjp`'s pullback for the function of this page that is most like the finding's. "
            "Which of them does your answer leave out, and by what does it choose?",
            after=("wrong value",),
            says=says,
        )
        for says in ("it leaves out", "once that have one shape")
    ),
    Hint(
        "`six_sines` on this page keeps six values, in one row of the table. What does the row say, beside "
        "their bytes?",
        after=("wrong value",),
        says="rows of the table",
    ),
    *(
        Hint(
            "Take the two results of `jax.vjp(f, *args)` apart. Which leaves does each have, and which of them does "
            "your answer count, perhaps twice?",
            after=("wrong value",),
            says=says,
        )
        for says in ("output too", "counts arguments twice")
    ),
    Hint(
        "The page's scan of ten iterations keeps `f32[10,3]`. What does your answer say of it, and what of its bytes?",
        after=("wrong value",),
        says="one iteration",
    ),
    Hint(
        "`jax.grad(f)` and `jax.vjp(f, *args)`: how many gradients does each give, for a function of two arguments?",
        after=("wrong value",),
        says="first argument alone",
    ),
    Hint(
        "What does the page say that the pair's first number is, and what the second?",
        after=("wrong value",),
        says="the bytes, then the number",
    ),
    Hint(
        "A literal's shape is `()`. How many elements is that, and which attribute of an array says so for any shape?",
        after=("raises",),
        says="shape of a literal",
    ),
    Hint(
        "`f(args)` and `f(*args)`: how many arguments does `f` get from each, where `args` is a tuple of two arrays?",
        after=("raises",),
        says="handed on",
    ),
    Hint(
        "The page's mini-example calls `jax.vjp(f, w, x)` and not `jax.grad`. What are the two things that come back, "
        "and which of them knows what is kept?",
        after=("raises",),
        says="jax.grad wants a function",
    ),
    Hint(
        "How many elements has `f32[10,3]`, and how many bytes each of them? Which attributes of a shape and of its "
        "dtype say so?",
        after=("raises",),
        says="What stands for an array",
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    return ()  # its answers are data
