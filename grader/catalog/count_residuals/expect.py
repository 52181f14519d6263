"""What is expected of an answer; only the judge reads this."""

import functools

import jax
import numpy as np

import rematscope
from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import KnownMistake


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
    """Return a function that counts only some of the residuals."""

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
    """Return a function that counts right, but takes the bytes per element from `itemsize(dtype, args)`."""
    return lambda f, *args: (reference(f, *args)[0], sum(a.size * itemsize(a.dtype, args) for a in _kept(f, *args)))


def _each_kind_once(f, *args):
    kept = {(array.shape, array.dtype): array for array in _kept(f, *args)}
    return len(kept), _nbytes(kept.values())


_SEEN_APART = "If f is only traced, with jax.eval_shape or by rematscope, can it tell that two arguments are the same "
_SEEN_APART += "array?"

mistakes = (
    KnownMistake(
        "it leaves out the literals in the function",
        _without_literals,
        "To compute the gradient of 3 * x, which number does the backward pass need?",
    ),
    KnownMistake(
        "it counts the bytes of one iteration of the scan",
        _one_iteration,
        "How many times does the loop body run, and does each iteration save its own values?",
    ),
    KnownMistake(
        "it counts arguments twice, or counts arguments that are not saved",
        _arguments_again,
        "Are the arguments that the backward pass needs already among the residuals?",
    ),
    KnownMistake(
        "it also counts the output of f",
        _output_too,
        "Which two things does jax.vjp return, and which of them holds the residuals?",
    ),
    KnownMistake(
        "it counts rows of the table, but several residuals can share a row",
        _rows,
        "If a row begins with 6 ×, how many values does it stand for?",
    ),
    KnownMistake(
        "it counts an argument that is not saved but is the same array as one that is: run on arrays, jax.vjp does "
        "not tell the two apart",
        _run,
        _SEEN_APART,
    ),
    KnownMistake("it counts an array once although it is passed as several arguments", _different_arrays, _SEEN_APART),
    KnownMistake(
        "it counts only what the gradient with respect to the first argument needs",
        _first_argument,
        "With respect to which arguments does jax.vjp differentiate, and with respect to which does jax.grad?",
    ),
    KnownMistake(
        "it counts elements instead of bytes",
        lambda f, *args: (reference(f, *args)[0], int(sum(np.prod(a.shape) for a in _kept(f, *args)))),
        "How many bytes does one element take, and which attribute of an array says so?",
    ),
    KnownMistake(
        "it counts 4 bytes per element",
        lambda f, *args: (reference(f, *args)[0], 4 * int(sum(np.prod(a.shape) for a in _kept(f, *args)))),
        "How many bytes do a bfloat16 and a bool element take?",
    ),
    KnownMistake(
        "it counts 4 bytes per float16 element",
        _in_bytes(lambda dtype, _: 4 if dtype == np.float16 else dtype.itemsize),
        "For which dtypes does your answer list the size, and what does array.dtype.itemsize give for the others?",
    ),
    KnownMistake(
        "it uses the first argument's dtype for every residual",
        _in_bytes(lambda _, args: jax.tree.leaves(args)[0].dtype.itemsize),
        "Can the residuals of one function have more than one dtype?",
    ),
    *(
        KnownMistake(
            "it leaves out residuals that are not floats",
            _that_are(floats),
            "Does the backward pass need a mask or integer indices, even though no gradient flows through them?",
        )
        for floats in (
            lambda array: not np.issubdtype(array.dtype, np.integer),
            lambda array: not np.issubdtype(array.dtype, np.integer) and array.dtype != bool,
            lambda array: array.dtype != bool,
        )
    ),
    *(
        KnownMistake(
            "it leaves out arguments that are saved",
            _of_kinds(*kinds),
            "Which arguments does the backward pass need? Are they among the residuals that you count?",
        )
        for kinds in (("computed", "constant"), ("computed",))
    ),
    KnownMistake(
        "it counts residuals of the same shape and dtype once",
        _each_kind_once,
        "six_sines saves six values of one shape and dtype. Does your answer count all six?",
    ),
    KnownMistake(
        "it returns the bytes first, then the number",
        lambda f, *args: reference(f, *args)[::-1],
        "Which of the two does the page ask for first?",
    ),
)

compared_with = "the number and the size of f's residuals"
otherwise = "What does residual_table show for a function of this kind?"

error_questions = (
    (
        r"scalar-output",
        "jax.grad needs a function that returns one number, but f may return any array. Which function of the "
        "mini-example accepts any f?",
    ),
    (
        r"ShapeDtypeStruct' object has no attribute",
        "A ShapeDtypeStruct has a shape, a size and a dtype. How do you compute its bytes from these?",
    ),
    (r"^IndexError", "What is the shape of a literal, and does that line work for it?"),
    (r"as an abstract array", "jax.eval_shape passes shapes and dtypes instead of arrays. Is f an array?"),
    (r"[Tt]racer|[Cc]oncret", "Which part of your answer needs the values of arrays, not only their shapes?"),
    (r"positional argument", "How many arguments does f take, and does your answer pass all of them to it?"),
)

hints = (
    Hint(
        "Which of the two things that `jax.vjp` returns must hold the residuals? Which function takes it apart into "
        "arrays?",
    ),
    Hint(
        "Does your answer return a pair of two plain integers: the number of values first, then their bytes?",
        on_kinds=("wrong type",),
    ),
    Hint(
        "The finding is about one array that is passed twice. What would your answer return if it saw only shapes and "
        "dtypes, and no arrays? Which function on this page calls another one in that way?",
        on_kinds=("wrong value",),
        on_text="only traced",
    ),
    Hint(
        "`jax.eval_shape(function, *arrays)` passes only arrays. Write an inner function of `*args` that calls "
        "`jax.vjp(f, *args)`: where does it get `f` from?",
        on_kinds=("raises",),
        on_text="Is f an array",
    ),
    Hint(
        "Look at the case that the finding names. Which items of the page's list under “What exactly counts” apply to "
        "that function?",
        on_kinds=("wrong value",),
    ),
    Hint(
        "There are two ways. `residual_table(f, *args)` has `nbytes` and `rows`, but one row can stand for several "
        "values: what is `values` of a row? The other way is to count the leaves of the pullback."
    ),
    Hint(
        "Nearly the answer: write an inner function of `*args` that calls `jax.vjp(f, *args)` and returns the leaves "
        "of the second result. Pass it to `jax.eval_shape`. How many leaves do you get, and how many bytes is each?"
    ),
    *(
        Hint(
            "Print the shape and dtype of each leaf, for a function with two dtypes. How does your answer compute the "
            "bytes, and what does `array.dtype.itemsize` give?",
            on_kinds=("wrong value",),
            on_text=says,
        )
        for says in ("4 bytes", "elements instead of bytes", "first argument's dtype")
    ),
    *(
        Hint(
            "Take the function on this page that is most like the one in the finding. Print the leaves of its pullback "
            "from `jax.vjp`. Which of them does your answer not count?",
            on_kinds=("wrong value",),
            on_text=says,
        )
        for says in ("it leaves out", "same shape and dtype once")
    ),
    Hint(
        "`six_sines` on this page saves six values, shown in one row of the table. What does that row show before the "
        "type?",
        on_kinds=("wrong value",),
        on_text="rows of the table",
    ),
    *(
        Hint(
            "Print the leaves of each of the two results of `jax.vjp(f, *args)`. Which of them does your answer count, "
            "and does it count any array twice?",
            on_kinds=("wrong value",),
            on_text=says,
        )
        for says in ("the output of f", "counts arguments twice")
    ),
    Hint(
        "The page's scan of ten iterations saves one residual, `f32[10,3]`. How many bytes does your answer count for "
        "it?",
        on_kinds=("wrong value",),
        on_text="one iteration",
    ),
    Hint(
        "Compare `jax.grad(f)` with `jax.vjp(f, *args)` for a function of two arguments. How many gradients does each "
        "of them give?",
        on_kinds=("wrong value",),
        on_text="respect to the first argument",
    ),
    Hint(
        "The page asks for a pair, `(n, bytes)`. Which of the two does your answer return first?",
        on_kinds=("wrong value",),
        on_text="bytes first, then the number",
    ),
    Hint(
        "The shape of a literal is `()`. How many elements is that, and which attribute of an array gives the number "
        "of elements for any shape?",
        on_kinds=("raises",),
        on_text="shape of a literal",
    ),
    Hint(
        "Let `args` be a tuple of two arrays. How many arguments does `f` get from `f(args)`, and how many from "
        "`f(*args)`?",
        on_kinds=("raises",),
        on_text="pass all of them",
    ),
    Hint(
        "The page's mini-example calls `jax.vjp(f, w, x)` instead of `jax.grad`. Which two things does it return, and "
        "which of them holds the residuals?",
        on_kinds=("raises",),
        on_text="jax.grad needs a function",
    ),
    Hint(
        "How many elements does `f32[10,3]` have, and how many bytes does each element take? Which attributes of a "
        "`ShapeDtypeStruct` and of its dtype give these numbers?",
        on_kinds=("raises",),
        on_text="compute its bytes",
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    return ()  # its answers are data
