"""What is expected of an answer; only the judge reads this. All counts are of programs that are compiled here."""

import functools
from collections.abc import Iterator, Mapping

import jax
import jax.numpy as jnp

from grader.exercises.hints import ABOUT_ERRORS, Hint
from grader.exercises.requirements import KnownMistake
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
    KnownMistake(
        "the last layer has no checkpoint",
        _other_program(of_layers(_all_but_the_last)),
        "How many of the n layers do you call through jax.checkpoint?",
    ),
    KnownMistake(
        "the two numbers of each pair are swapped",
        _other_order,
        "Which setting comes first in each pair, and which of the two programs has barriers?",
    ),
    KnownMistake(
        "it swaps lowered and compiled",
        _one_for_the_other,
        "Which of the two texts do you get before XLA compiles the program, and which one after?",
    ),
    KnownMistake(
        "it counts the lowered program twice, and the compiled one not at all",
        _twice_lowered,
        "Which method of the lowered program runs XLA, and whose text do you count as compiled?",
    ),
    KnownMistake(
        "it counts the compiled program twice, and the lowered one not at all",
        _twice_compiled,
        "Which text shows the program that JAX asks for, before XLA changes it?",
    ),
    *(
        KnownMistake(
            "both numbers of each pair are for the same setting",
            _one_setting(which),
            "Does the value of prevent_cse reach jax.checkpoint?",
        )
        for which in (0, 1)
    ),
    KnownMistake(
        "it counts barriers in a text that has none",
        _no_barriers,
        "JAX adds barriers when it lowers, and XLA removes them when it compiles. In which text do you count, and "
        "what?",
    ),
    *(
        KnownMistake(
            "it counts in the jaxpr, before lowering",
            _before_lowering(in_bodies, barriers),
            "How many times does a jaxpr print a function that is used n times, and does it contain barriers?",
        )
        for in_bodies in (False, True)
        for barriers in (True, False)
    ),
    KnownMistake(
        "there is one checkpoint around all of the layers",
        _other_program(_around_all),
        "How many barriers does one checkpoint add, and how many checkpoints does the page ask for?",
    ),
    KnownMistake(
        "it uses the page's layer instead of the layer that it gets",
        _other_program(of_layers(_of_the_page)),
        "Which function does your loss call for each weight: the layer defined on your page, or the argument?",
    ),
    KnownMistake(
        "it has one layer, whatever n is",
        _one_layer,
        "How many weights do you pass to the program, and how many times does your loss call a layer?",
    ),
    KnownMistake(
        "it has one layer too few",
        _one_layer_less,
        "How many times does your loss call a layer, for a list of n weights?",
    ),
    KnownMistake(
        "there is no checkpoint",
        _other_program(of_layers(without_checkpoints)),
        "Which call adds a barrier, and which function do you call for each layer?",
    ),
    KnownMistake(
        "it is the gradient without the value",
        _other_program(_gradient_alone),
        "Which matmul is not needed if only the gradient is computed?",
    ),
    KnownMistake(
        "it is the loss alone, without its gradient",
        _other_program(_forward),
        "Which of JAX's functions gives both the loss and its gradient?",
    ),
    KnownMistake(
        "it also has the gradient with respect to x",
        _other_program(_of_x_too),
        "With respect to which argument does jax.value_and_grad differentiate by default?",
    ),
    KnownMistake(
        "its layers are in a scan",
        _other_program(_in_a_scan),
        "How many times does the body of a loop appear in a program's text, however often it runs?",
    ),
)

compared_with = "what the two programs contain"
otherwise = "For n = 1, which lines of each of your two texts are matmuls? How many do you count?"

error_questions = (
    (
        r"takes [123] positional arguments? but 4",
        "cse_lab is called with layer, w, x and n. Which of them does yours take?",
    ),
    (r"dot_general requires|matmul:|contracting dimension", "In which order does a layer take w and x?"),
    (
        r"Wrong type <class 'function'>|zip\(\) argument|not iterable",
        "w is one weight. How many weights does the loss take, and as what?",
    ),
    (
        r"'(Lowered|Compiled|Traced|PjitFunction)' object",
        "Which of these has a text: the result of jit, of lower, or of compile? Which method gives the text?",
    ),
    (r"[Tt]racer|[Cc]oncret", "Does your answer count something inside the function that is traced?"),
    (r"real- or complex|scalar-output", "What does your loss return, and which argument do you differentiate?"),
)

hints = (
    Hint(
        "How many programs are there for one `n`? Which two texts does each of them have, and what do you count in "
        "each?"
    ),
    Hint(
        "Does your answer return a dict with the page's three keys? Under each key there should be two integers, first "
        "the one for `prevent_cse=True`.",
        on_kinds=("wrong type",),
    ),
    Hint(
        "Set `n` to 1, and print the lines with matmuls. The page's layer has one in the forward pass, one for the "
        "gradient of `w`, and one that is recomputed. Do you count as many, and does the derivative of the finding's "
        "layer use its matmul's result?",
        on_kinds=("wrong value",),
    ),
    Hint(
        "Can you write a function of `n` and `prevent_cse` that builds the loss, differentiates it, and returns the "
        "lowered program? What does its `.compile()` return?",
        on_kinds=("wrong value", "raises"),
    ),
    Hint(
        "The page's example counts `stablehlo.dot_general` in one text and ` dot(` in the other. What is a barrier "
        "called, and which text contains it?"
    ),
    Hint(
        "Nearly the answer: for `True` and for `False`, call `jax.jit(jax.value_and_grad(loss)).lower([w] * n, x)`, "
        "where `loss` calls `jax.checkpoint(layer, prevent_cse=...)` for each `w`. Which three counts do you take from "
        "each?"
    ),
    Hint(
        "Copy the layer that the finding shows to your page. What does your answer count for it, and what for the "
        "page's own layer? Should the two be equal?",
        on_kinds=("wrong value",),
        on_text="instead of the layer that it gets",
    ),
    *(
        Hint(
            "Print the lines with `optimization_barrier` in the lowered program for `n = 2`. How many are there per "
            "layer, and do you call every layer through `jax.checkpoint`?",
            on_kinds=("wrong value",),
            on_text=says,
        )
        for says in (
            "one checkpoint around",
            "has no checkpoint",
            "there is no checkpoint",
            "in a text that has none",
        )
    ),
    *(
        Hint(
            "For `n = 1`, print the lines with `dot_general` in the lowered program. Which of them computes the loss, "
            "which the gradient of `w`, and which the gradient of `x`? Compare with what the page asks for.",
            on_kinds=("wrong value",),
            on_text=says,
        )
        for says in ("gradient without the value", "loss alone", "also has the gradient")
    ),
    *(
        Hint(
            "Print your two texts for `n = 1` and `prevent_cse=False`, each with the key under which you count it. "
            "Which of them contains `stablehlo`, and which contains ` dot(`?",
            on_kinds=("wrong value",),
            on_text=says,
        )
        for says in ("swaps lowered", "the compiled one not at all", "the lowered one not at all", "in the jaxpr")
    ),
    *(
        Hint(
            "Count the barriers in each of your two programs. Which setting of `prevent_cse` should give some, and "
            "where in the pair does the page want that number?",
            on_kinds=("wrong value",),
            on_text=says,
        )
        for says in ("are swapped", "for the same setting")
    ),
    Hint(
        "Print the lines of the compiled program that contain your search text. Which of them compute a matmul, and "
        "which contain the text only in a name?",
        on_kinds=("wrong value",),
        on_text=("contain: under 'compiled', the numbers are too large", "is right"),
    ),
    Hint(
        "The finding says which entries are right. Take the first wrong one: do you count in the lowered or in the "
        "compiled program, and which text do you search for?",
        on_kinds=("wrong value",),
        on_text=("under '", "is right"),
    ),
    Hint(
        "The body of a scan appears once in the program's text, whatever its number of iterations. Which other loop "
        "over the weights writes every layer into the program?",
        on_kinds=("wrong value",),
        on_text="layers are in a scan",
    ),
    Hint(
        "Let your loss print a line each time it calls a layer while it is traced, for `n = 1` and for `n = 4`. Do you "
        "see `n` lines?",
        on_kinds=("wrong value",),
        on_text="one layer too few",
    ),
    Hint(
        "The grader calls your function with the layer as the first argument, then `w`, `x` and `n`. Which arguments "
        "does your line `def cse_lab(...)` have?",
        on_kinds=("raises",),
        on_text="Which of them does yours take",
    ),
    *ABOUT_ERRORS,
)


def requirements(case):
    return ()  # its answers are data
