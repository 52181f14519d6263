"""What is expected of an answer; only the judge reads this. All counts are of programs that are compiled here."""

import functools

import jax
import jax.numpy as jnp

from grader.exercises.hints import Hint
from grader.exercises.requirements import Mistake


def layer_of_the_page(w, x):
    return jnp.sin(x @ w)


def arguments_for(n):
    """Shapes of the weights of n layers, and of x."""
    cpu = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])
    w, x = (jax.ShapeDtypeStruct(shape, jnp.float32, sharding=cpu) for shape in ((16, 16), (8, 16)))
    return [w] * n, x


def _each(n, prevent_cse):
    return [jax.checkpoint(layer_of_the_page, prevent_cse=prevent_cse)] * n


def _all_but_the_last(n, prevent_cse):
    return [*_each(n - 1, prevent_cse), layer_of_the_page]


def without_checkpoints(n, prevent_cse):
    return [layer_of_the_page] * n


def _loss(layers):
    def loss(ws, x):
        for layer, w in zip(layers, ws, strict=True):
            x = layer(w, x)
        return jnp.sum(x)

    return loss


def of_layers(layers):
    """The same program of other layers: `layers(n, prevent_cse)` makes them."""
    return lambda n, prevent_cse: jax.value_and_grad(_loss(layers(n, prevent_cse)))


def asked_for(n, prevent_cse):
    """The page's program: value and gradient of n layers, each with a checkpoint."""
    return of_layers(_each)(n, prevent_cse)


def _around_all(n, prevent_cse):
    return jax.value_and_grad(jax.checkpoint(_loss(without_checkpoints(n, prevent_cse)), prevent_cse=prevent_cse))


def _gradient_alone(n, prevent_cse):
    return jax.grad(_loss(_each(n, prevent_cse)))


def _of_x_too(n, prevent_cse):
    return jax.value_and_grad(_loss(_each(n, prevent_cse)), argnums=(0, 1))


def _forward(n, prevent_cse):
    return _loss(_each(n, prevent_cse))


@functools.cache  # compiling is what a check's time goes to
def compiled_texts(program, n, prevent_cse) -> tuple[str, str]:
    """A program for n layers as JAX lowers it, and as XLA compiles it."""
    lowered = jax.jit(program(n, prevent_cse)).lower(*arguments_for(n))
    return lowered.as_text(), lowered.compile().as_text() or ""


def counts_of(program, n) -> dict:
    """What the page asks for, of another program perhaps: pairs, with `prevent_cse` first and without it second."""
    texts = [compiled_texts(program, n, prevent_cse) for prevent_cse in (True, False)]
    return {
        "barriers": tuple(lowered.count("stablehlo.optimization_barrier") for lowered, _ in texts),
        "lowered": tuple(lowered.count("stablehlo.dot_general") for lowered, _ in texts),
        "compiled": tuple(compiled.count(" dot(") for _, compiled in texts),
    }


def reference(n) -> dict:
    return counts_of(asked_for, n)


def _other_program(program):
    return lambda n: counts_of(program, n)


def _other_order(n):
    return {key: pair[::-1] for key, pair in reference(n).items()}


def _one_for_the_other(n):
    counts = reference(n)
    return counts | {"lowered": counts["compiled"], "compiled": counts["lowered"]}


def _twice_lowered(n):
    counts = reference(n)
    return counts | {"compiled": counts["lowered"]}


def _twice_compiled(n):
    counts = reference(n)
    return counts | {"lowered": counts["compiled"]}


def _one_setting(which):
    return lambda n: {key: (pair[which],) * 2 for key, pair in reference(n).items()}


def _no_barriers(n):
    return reference(n) | {"barriers": (0, 0)}


def _before_lowering(in_bodies, barriers):
    """Counts of jaxprs, in their text or of the equations outside of any body; traced anew, since JAX has two ways."""

    def count(jaxpr, primitive):
        if in_bodies:
            return str(jaxpr).count(primitive)
        return sum(equation.primitive.name == primitive for equation in jaxpr.eqns)

    def counts(n):
        jaxprs = [jax.make_jaxpr(asked_for(n, prevent_cse))(*arguments_for(n)) for prevent_cse in (True, False)]
        found = {"lowered": tuple(count(jaxpr, "dot_general") for jaxpr in jaxprs)}
        if barriers:
            found["barriers"] = tuple(count(jaxpr, "optimization_barrier") for jaxpr in jaxprs)
        return reference(n) | found

    return counts


mistakes = (
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
        "the last layer has no checkpoint",
        _other_program(of_layers(_all_but_the_last)),
        "How many of the n layers are called through jax.checkpoint?",
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
)

compared_with = "what JAX does"
otherwise = "For n = 1, which lines of each of your two texts are matrix products? How many did you count?"

error_questions = (
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
        "Set `n` to 1, and print the lines with matrix products. One layer has one in the forward pass, one for the "
        "gradient of `w`, and one that is computed again. Do you find as many?",
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
)


def requirements(case):
    return ()  # its answers are data
