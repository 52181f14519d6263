"""What is expected of an answer; only the judge reads this. All counts are of programs that are compiled here."""

import functools
from collections.abc import Iterator, Mapping

import jax
import jax.numpy as jnp

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import Mistake
from grader.stablehlo.execution import COMPILE_FAST


def layer_of_the_page(w, x):
    return jnp.sin(x @ w)


def _each(layer, n, prevent_cse):
    return [jax.checkpoint(layer, prevent_cse=prevent_cse)] * n


def _all_but_the_last(layer, n, prevent_cse):
    return [*_each(layer, n - 1, prevent_cse), layer]


def without_checkpoints(layer, n, prevent_cse):
    return [layer] * n


def _of_the_page(layer, n, prevent_cse):
    return _each(layer_of_the_page, n, prevent_cse)


def _loss(layers):
    def loss(ws, x):
        for layer, w in zip(layers, ws, strict=True):
            x = layer(w, x)
        return jnp.sum(x)

    return loss


def of_layers(layers):
    """The same program of other layers: `layers(layer, n, prevent_cse)` makes them."""
    return lambda layer, n, prevent_cse: jax.value_and_grad(_loss(layers(layer, n, prevent_cse)))


asked_for = of_layers(_each)  # the page's program: value and gradient of n layers, each with a checkpoint


def _around_all(layer, n, prevent_cse):
    loss = _loss(without_checkpoints(layer, n, prevent_cse))
    return jax.value_and_grad(jax.checkpoint(loss, prevent_cse=prevent_cse))


def _gradient_alone(layer, n, prevent_cse):
    return jax.grad(_loss(_each(layer, n, prevent_cse)))


def _of_x_too(layer, n, prevent_cse):
    return jax.value_and_grad(_loss(_each(layer, n, prevent_cse)), argnums=(0, 1))


def _in_a_scan(layer, n, prevent_cse):
    wrapped = jax.checkpoint(layer, prevent_cse=prevent_cse)

    def loss(ws, x):
        return jnp.sum(jax.lax.scan(lambda x, w: (wrapped(w, x), None), x, jnp.stack(ws))[0])

    return jax.value_and_grad(loss)


def _forward(layer, n, prevent_cse):
    return _loss(_each(layer, n, prevent_cse))


class Counts(Mapping[str, tuple[int, int]]):
    """What the page asks for, of another program perhaps: pairs, with `prevent_cse` first and without it second.

    Each is counted when it is asked for. To compile is what a check's time goes to, and most programs that a mistake
    leads to are told from the answer's before they are compiled.
    """

    def __init__(self, program, layer, w, x, n):
        self._programs = [Program(program, layer, w, x, n, prevent_cse) for prevent_cse in (True, False)]

    def __getitem__(self, key: str) -> tuple[int, int]:
        first, second = (program.count(key) for program in self._programs)
        return first, second

    def __iter__(self) -> Iterator[str]:
        return iter(_WORDS)

    def __len__(self) -> int:
        return len(_WORDS)


_WORDS = {"barriers": "stablehlo.optimization_barrier", "lowered": "stablehlo.dot_general", "compiled": " dot("}


@functools.lru_cache(maxsize=256)
class Program:
    """A program for n layers as JAX lowers it, and as XLA compiles it."""

    def __init__(self, program, layer, w, x, n, prevent_cse):
        self._lowered = jax.jit(program(layer, n, prevent_cse)).lower([w] * n, x)

    @functools.cached_property
    def _text(self) -> str:
        return self._lowered.as_text()

    @functools.cached_property
    def _compiled(self) -> str:
        # What products there are does not depend on how much is done for the machine code.
        return self._lowered.compile(COMPILE_FAST).as_text() or ""

    def count(self, key: str) -> int:
        return (self._compiled if key == "compiled" else self._text).count(_WORDS[key])


def reference(layer, w, x, n) -> dict:
    return dict(Counts(asked_for, layer, w, x, n))


def _other_program(program):
    return functools.partial(Counts, program)


def _other_order(*asked):
    return {key: pair[::-1] for key, pair in reference(*asked).items()}


def _one_for_the_other(*asked):
    counts = reference(*asked)
    return counts | {"lowered": counts["compiled"], "compiled": counts["lowered"]}


def _twice_lowered(*asked):
    counts = reference(*asked)
    return counts | {"compiled": counts["lowered"]}


def _twice_compiled(*asked):
    counts = reference(*asked)
    return counts | {"lowered": counts["compiled"]}


def _one_setting(which):
    return lambda *asked: {key: (pair[which],) * 2 for key, pair in reference(*asked).items()}


def _no_barriers(*asked):
    return reference(*asked) | {"barriers": (0, 0)}


def _one_layer(layer, w, x, n):
    return Counts(asked_for, layer, w, x, 1)


def _one_layer_less(layer, w, x, n):
    return Counts(asked_for, layer, w, x, max(n - 1, 1))


def _before_lowering(in_bodies, barriers):
    """Counts of jaxprs, in their text or of the equations outside of any body; traced anew, since JAX has two ways."""

    def count(jaxpr, primitive):
        if in_bodies:
            return str(jaxpr).count(primitive)
        return sum(equation.primitive.name == primitive for equation in jaxpr.eqns)

    def counts(layer, w, x, n):
        jaxprs = [jax.make_jaxpr(asked_for(layer, n, prevent_cse))([w] * n, x) for prevent_cse in (True, False)]
        found = {"lowered": tuple(count(jaxpr, "dot_general") for jaxpr in jaxprs)}
        if barriers:
            found["barriers"] = tuple(count(jaxpr, "optimization_barrier") for jaxpr in jaxprs)
        return reference(layer, w, x, n) | found

    return counts


mistakes = (
    Mistake(
        "the last layer has no checkpoint",
        _other_program(of_layers(_all_but_the_last)),
        "How many of the n layers are called through jax.checkpoint?",
    ),
    Mistake(
        "the two of each pair are the wrong way round",
        _other_order,
        "Which setting comes first in each pair, and for which of the two are there barriers?",
    ),
    Mistake(
        "lowered and compiled are mixed up",
        _one_for_the_other,
        "Which of the two texts is handed to XLA, and which one comes back from it?",
    ),
    Mistake(
        "it counts the lowered program twice, and the compiled one not at all",
        _twice_lowered,
        "What has to happen to the lowered program before XLA has changed anything in it?",
    ),
    Mistake(
        "it counts the compiled program twice, and the lowered one not at all",
        _twice_compiled,
        "Which text shows what JAX asks for, before XLA has changed it?",
    ),
    *(
        Mistake(
            "both of each pair are those of the same setting",
            _one_setting(which),
            "Does the value of prevent_cse get as far as jax.checkpoint?",
        )
        for which in (0, 1)
    ),
    Mistake(
        "it counts barriers where there are none",
        _no_barriers,
        "A barrier is put in when JAX lowers, and taken out when XLA compiles. Where do you count, and which word?",
    ),
    *(
        Mistake(
            "it counts in the jaxpr, before lowering",
            _before_lowering(in_bodies, barriers),
            "How often does a jaxpr print a function that is used n times, and has it got barriers at all?",
        )
        for in_bodies in (False, True)
        for barriers in (True, False)
    ),
    Mistake(
        "there is one checkpoint, around all of the layers",
        _other_program(_around_all),
        "How many barriers are there for one checkpoint, and how many checkpoints does the page ask for?",
    ),
    Mistake(
        "its layers are those of the page, not the layer that it is given",
        _other_program(of_layers(_of_the_page)),
        "Which function does your loss call for each weight: the one of that name on your page, or the argument?",
    ),
    Mistake(
        "it has one layer, however many are asked for",
        _one_layer,
        "How many weights do you hand to the program, and how often does your loss call a layer?",
    ),
    Mistake(
        "it has one layer less than is asked for",
        _one_layer_less,
        "How often does your loss call a layer, for a list of n weights?",
    ),
    Mistake(
        "there is no checkpoint",
        _other_program(of_layers(without_checkpoints)),
        "What is a barrier put around, and which function do you call for each layer?",
    ),
    Mistake(
        "it is the gradient without the value",
        _other_program(_gradient_alone),
        "Which matrix product does nobody need, if only the gradient is asked for?",
    ),
    Mistake(
        "it is the loss alone, without its gradient",
        _other_program(_forward),
        "Which function makes the program with both, the loss and its gradient?",
    ),
    Mistake(
        "it is the gradient with respect to x, too",
        _other_program(_of_x_too),
        "With respect to which argument does jax.value_and_grad differentiate, if it is told nothing else?",
    ),
    Mistake(
        "its layers are in a scan",
        _other_program(_in_a_scan),
        "How often does a loop's body stand in a program's text, however often it runs?",
    ),
)

compared_with = "what JAX does"
otherwise = "For n = 1, which lines of each of your two texts are matrix products? How many did you count?"

error_questions = (
    (
        r"takes [123] positional arguments? but 4",
        "cse_lab is given a layer, w, x and n. Which of them does yours take?",
    ),
    (r"dot_general requires|matmul:|contracting dimension", "In which order does a layer take w and x?"),
    (
        r"Wrong type <class 'function'>|zip\(\) argument|not iterable",
        "Is w one weight, and how many does the loss take?",
    ),
    (
        r"'(Lowered|Compiled|Traced|PjitFunction)' object",
        "Which of these has a text: jit's, lower's, or compile's result?",
    ),
    (r"[Tt]racer|[Cc]oncret", "Is anything counted inside of the function that is traced?"),
    (r"real- or complex|scalar-output", "What does your loss return, and which argument is differentiated?"),
)

hints = (
    Hint(
        "How many programs are there to look at, for one n? Which texts has each of them, and what do you count there?"
    ),
    Hint(
        "Is it a dict with these three keys, and under each of them two integers, first for `prevent_cse=True`?",
        after=("wrong type",),
    ),
    Hint(
        "Set `n` to 1, and print the lines with matrix products. The page's own layer has one in the forward pass, one "
        "for the gradient of `w`, and one that is computed again. Do you find as many? And does the derivative of the "
        "finding's layer need what its product gives?",
        after=("wrong value",),
    ),
    Hint(
        "Can you write a function of `n` and `prevent_cse` that builds the loss, differentiates it, and returns the "
        "lowered program? What does `.compile()` of that give?",
        after=("wrong value", "raises"),
    ),
    Hint(
        "The page's example counted `stablehlo.dot_general` in one text and ` dot(` in the other. What is the word for "
        "a barrier, and in which text does it stand?"
    ),
    Hint(
        "Nearly the answer: for `True` and for `False`, `jax.jit(jax.value_and_grad(loss)).lower([w] * n, x)`, where "
        "`loss` calls `jax.checkpoint(layer, prevent_cse=...)` for each `w`. Which three counts do you take of it?"
    ),
    Hint(
        "Copy the layer that the finding shows onto your page. What does your answer count for it, and what for the "
        "page's own layer? Should both be the same?",
        after=("wrong value",),
        says="not the layer that it is given",
    ),
    *(
        Hint(
            "Print the lines with `optimization_barrier` in the lowered program for `n = 2`. How many are there for "
            "each layer, and is every layer called through `jax.checkpoint`?",
            after=("wrong value",),
            says=says,
        )
        for says in (
            "one checkpoint, around",
            "has no checkpoint",
            "there is no checkpoint",
            "barriers where there are none",
        )
    ),
    *(
        Hint(
            "For `n = 1`, print the lines with `dot_general` in the lowered program. For which of the loss, the "
            "gradient of `w` and the gradient of `x` is each of them there?",
            after=("wrong value",),
            says=says,
        )
        for says in ("gradient without the value", "loss alone", "respect to x, too")
    ),
    *(
        Hint(
            "Print your two texts for `n = 1` and `prevent_cse=False`, each with the name that you count it under. "
            "Which of them has `stablehlo` in it, and which ` dot(`?",
            after=("wrong value",),
            says=says,
        )
        for says in ("mixed up", "the compiled one not at all", "the lowered one not at all", "in the jaxpr")
    ),
    *(
        Hint(
            "Count the barriers of each of your two programs. For which setting of `prevent_cse` should there be some, "
            "and where in the pair does the page want that number?",
            after=("wrong value",),
            says=says,
        )
        for says in ("wrong way round", "of the same setting")
    ),
    Hint(
        "Print the lines of the compiled program that your word stands in. In how many of them is a product computed, "
        "and in how many is the word part of a name?",
        after=("wrong value",),
        says=("does: under 'compiled', the numbers are too large", "is right"),
    ),
    Hint(
        "The finding says which entries are right. Of the first that is not: of which program do you take the text, is "
        "it the lowered or the compiled one, and which word do you count?",
        after=("wrong value",),
        says=("under '", "is right"),
    ),
    Hint(
        "A scan has its layer once in the program's text, however many turns it runs. What else goes through a list of "
        "weights, so that each layer stands in the text?",
        after=("wrong value",),
        says="layers are in a scan",
    ),
    Hint(
        "Let your loss count how often it calls a layer while it is traced, for `n = 1` and for `n = 4`. Is it `n` "
        "times?",
        after=("wrong value",),
        says="one layer less",
    ),
    Hint(
        "The function that the checker calls takes the layer as its first argument, then `w`, `x` and `n`. What does "
        "the line `def cse_lab(...)` of your answer say?",
        after=("raises",),
        says="Which of them does yours take",
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    return ()  # its answers are data
