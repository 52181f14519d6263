"""Wrong answers to pin_args, each with the finding that must name its mistake."""

import functools

import jax
import jax.numpy as jnp
from sample_answers import Answers, also_run_backward

WRONG = Answers()
fails_with = WRONG.fails_with
policies = jax.checkpoint_policies


def pinned(f, held=lambda count: (*[False] * (count - 1), True), **options):
    return lambda *own: jax.checkpoint(f, prevent_cse=held(len(own)), **options)(*own)


@fails_with("no barrier", "Your barrier also holds w1 and w2", "in the order in which f takes them")
def the_default(f):
    return jax.checkpoint(f)


@fails_with("no barrier", "No barrier holds x.", "nothing held")
def no_barrier(f):
    return jax.checkpoint(f, prevent_cse=False)


@fails_with("no barrier", "Your barrier also holds w1 and w2", "x held, w1 and w2 free")
def all_true(f):
    return pinned(f, lambda count: (True,) * count)


@fails_with("no barrier", "No barrier holds x.", "nothing held")
def all_false(f):
    return pinned(f, lambda count: (False,) * count)


@fails_with("no barrier", "No barrier holds x, but one holds w1.", "w1 held")
def first_held(f):
    return pinned(f, lambda count: (True, *[False] * (count - 1)))


@fails_with("no barrier", "No barrier holds x, but one holds w1 and w2.", "w1 and w2 held")
def the_wrong_way_round(f):
    return pinned(f, lambda count: (*[True] * (count - 1), False))


@fails_with("no barrier", "Your barrier also holds w2", "w2 and x held")
def first_free_alone(f):
    return pinned(f, lambda count: (False, *[True] * (count - 1)))


@fails_with("no barrier", "No barrier holds x.", "nothing held")
def barrier_in_the_forward_pass(f):
    free = jax.checkpoint(f, prevent_cse=False)
    return lambda *own: free(*own[:-1], jax.lax.optimization_barrier(own[-1]))


@fails_with("no barrier", "Your barrier also holds w1 and w2")
def one_checkpoint_in_another(f):
    return pinned(jax.checkpoint(f))


@fails_with("no barrier", "Your barrier also holds w1")
def one_weight_as_by_default(f):
    return lambda *own: (jax.checkpoint(f) if len(own) == 2 else pinned(f))(*own)


@fails_with("raises", "how many values does your prevent_cse have")
def for_two_arguments(f):
    return jax.checkpoint(f, prevent_cse=(False, True))


@fails_with("raises", "how many values does your prevent_cse have")
def one_answer_too_few(f):
    return pinned(f, lambda count: (False,) * (count - 1))


@fails_with("also saved", "Which function marks")
def as_it_is(f):
    return f


@fails_with("also saved", "the cosine of matmul 1")
def everything_kept(f):
    return pinned(f, policy=policies.everything_saveable)


@fails_with("also saved", "matmul 1, f32")
def products_kept(f):
    return pinned(f, policy=policies.dots_saveable)


@fails_with("wrong gradient", "w1 and w2 are zero everywhere")
def weights_stopped(f):
    layer = pinned(f)
    return lambda *own: layer(*map(jax.lax.stop_gradient, own[:-1]), own[-1])


@fails_with("wrong gradient", " x", "zero everywhere")
def input_stopped(f):
    layer = pinned(f)
    return lambda *own: layer(*own[:-1], jax.lax.stop_gradient(own[-1]))


@fails_with("wrong value", "in another order")
def weights_in_another_order(f):
    layer = pinned(f)
    return lambda *own: layer(*own[-2::-1], own[-1])


@fails_with("wrong type", "f32[]")
def summed(f):
    return lambda *own: jnp.sum(pinned(f)(*own))


@fails_with("raises", "may not be two")
def two_arguments(f):
    return lambda w, x: jax.checkpoint(f, prevent_cse=(False, True))(w, x)


@fails_with("recomputes")
def two_checkpoints(f):
    return pinned(functools.partial(_twice, f))


def _twice(f, *own):
    return (jax.checkpoint(f, prevent_cse=False)(*own) + f(*own)) / 2


@fails_with("recomputes", "How many nested checkpoints", beyond="Recomputes.count")
def first_product_once_more(f):
    return lambda *own: pinned(f)(*own[:-1], also_run_backward(jnp.matmul, own[-1], own[-1], own[0]))
