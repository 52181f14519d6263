"""What is expected of an answer; only the judge reads this. All counts are of programs that are compiled here."""

import functools
from collections.abc import Iterator, Mapping

import jax
import jax.numpy as jnp

from grader.exercises.feedback import read_feedback
from grader.stablehlo.execution import COMPILE_FAST

feedback = read_feedback(__file__)
mistake = feedback.mistake


def layer_of_the_page(w, x):
    return jnp.sin(x @ w)


def _checkpointed_layers(layer, n, prevent_cse):
    return [jax.checkpoint(layer, prevent_cse=prevent_cse)] * n


def without_checkpoints(layer, n, prevent_cse):
    return [layer] * n


def _loss_of_layers(layers):
    def loss(ws, x):
        for layer, w in zip(layers, ws, strict=True):
            x = layer(w, x)
        return jnp.sum(x)

    return loss


def of_layers(layers):
    """Return a function that counts in the same program of other layers: `layers(layer, n, prevent_cse)` makes them."""
    return lambda layer, n, prevent_cse: jax.value_and_grad(_loss_of_layers(layers(layer, n, prevent_cse)))


# The page's program: value and gradient of n layers, each with a checkpoint.
asked_for = of_layers(_checkpointed_layers)


def _around_all(layer, n, prevent_cse):
    loss = _loss_of_layers(without_checkpoints(layer, n, prevent_cse))
    return jax.value_and_grad(jax.checkpoint(loss, prevent_cse=prevent_cse))


def _checkpointed_loss(layer, n, prevent_cse):
    return _loss_of_layers(_checkpointed_layers(layer, n, prevent_cse))


def _in_a_scan(layer, n, prevent_cse):
    wrapped = jax.checkpoint(layer, prevent_cse=prevent_cse)

    def loss(ws, x):
        return jnp.sum(jax.lax.scan(lambda x, w: (wrapped(w, x), None), x, jnp.stack(ws))[0])

    return jax.value_and_grad(loss)


class Counts(Mapping[str, tuple[int, int]]):
    """The counts that the page asks for, of the page's program or another one: pairs with and without `prevent_cse`.

    Each count is computed on demand. Compiling takes most of a check's time, and most mistakes can be ruled out before
    their programs are compiled.
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
    """A program for n layers, as lowered by JAX and as compiled by XLA."""

    def __init__(self, program, layer, w, x, n, prevent_cse):
        self._lowered = jax.jit(program(layer, n, prevent_cse)).lower([w] * n, x)

    @functools.cached_property
    def _lowered_text(self) -> str:
        return self._lowered.as_text()

    @functools.cached_property
    def _compiled_text(self) -> str:
        # The matmuls do not depend on the optimization level of the machine code.
        return self._lowered.compile(COMPILE_FAST).as_text() or ""

    def count(self, key: str) -> int:
        return (self._compiled_text if key == "compiled" else self._lowered_text).count(_WORDS[key])


def reference(layer, w, x, n) -> dict:
    return dict(Counts(asked_for, layer, w, x, n))


def _other_program(program):
    return functools.partial(Counts, program)


def _with_other_counts(change):
    """Return the right counts, with the replacements that `change` returns."""

    def counts(*asked):
        right = reference(*asked)
        return right | change(right)

    return counts


def _before_lowering(in_bodies, barriers):
    """Return the counts of a jaxpr, either in its text or of the equations outside of all bodies. The program is traced
    again, because JAX has two implementations."""

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
    mistake(
        "last_layer_without_checkpoint",
        _other_program(
            of_layers(lambda layer, n, prevent_cse: [*_checkpointed_layers(layer, n - 1, prevent_cse), layer])
        ),
    ),
    mistake(
        "numbers_of_pairs_swapped", _with_other_counts(lambda right: {key: pair[::-1] for key, pair in right.items()})
    ),
    mistake(
        "programs_swapped",
        _with_other_counts(lambda right: {"lowered": right["compiled"], "compiled": right["lowered"]}),
    ),
    mistake("lowered_program_twice", _with_other_counts(lambda right: {"compiled": right["lowered"]})),
    mistake("compiled_program_twice", _with_other_counts(lambda right: {"lowered": right["compiled"]})),
    mistake(
        "same_prevent_cse",
        _with_other_counts(lambda right: {k: (on, on) for k, (on, _) in right.items()}),
    ),
    mistake(
        "same_prevent_cse",
        _with_other_counts(lambda right: {k: (off, off) for k, (_, off) in right.items()}),
    ),
    mistake("barriers_where_none_are", _with_other_counts(lambda _: {"barriers": (0, 0)})),
    *(
        mistake("jaxpr_before_lowering", _before_lowering(in_bodies, barriers))
        for in_bodies in (False, True)
        for barriers in (True, False)
    ),
    mistake("checkpoint_around_all_layers", _other_program(_around_all)),
    mistake(
        "layer_of_the_page",
        _other_program(of_layers(lambda _, n, prevent_cse: _checkpointed_layers(layer_of_the_page, n, prevent_cse))),
    ),
    mistake("one_layer", lambda layer, w, x, n: Counts(asked_for, layer, w, x, 1)),
    mistake("one_layer_too_few", lambda layer, w, x, n: Counts(asked_for, layer, w, x, max(n - 1, 1))),
    mistake("no_checkpoint", _other_program(of_layers(without_checkpoints))),
    mistake("gradient_without_value", _other_program(lambda *layers: jax.grad(_checkpointed_loss(*layers)))),
    mistake("loss_without_gradient", _other_program(_checkpointed_loss)),
    mistake(
        "gradient_of_x_too",
        _other_program(lambda *layers: jax.value_and_grad(_checkpointed_loss(*layers), argnums=(0, 1))),
    ),
    mistake("layers_in_a_scan", _other_program(_in_a_scan)),
)
