"""What an answer is tried on."""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import Offloadable, Recompute, Saveable, checkpoint_name

from grader.exercises.policies import answers, operations_of
from grader.exercises.spec import Case, OneOf, Question

parameters = ("p1", "p2")
_ANSWERS = {"True": True, "Saveable": Saveable, "False": False, "Recompute": Recompute}
ranges = {policy: OneOf((*_ANSWERS, "Offloadable(src, dst)")) for policy in parameters}
signature = "either(p1, p2)"


def cases(rng):
    """One function under six pairs of policies, at shapes drawn anew; and every pair of answers, asked for directly."""
    return (*_differentiated(rng), *_asked(rng))


def _differentiated(rng):
    """All widths of a case differ."""
    named = jax.checkpoint_policies.save_only_these_names
    offloaded_products = jax.checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    pairs = {
        "p1 saves hidden and squares while p2 saves squares and logits": (
            named("hidden", "squares"),
            named("squares", "logits"),
        ),
        "p1 saves sines while p2 saves products": (named("sines"), _products),
        "p1 offloads products while p2 saves sines": (offloaded_products, named("sines")),
        "p1 offloads hidden and saves squares while p2 saves hidden and logits": (
            _offload("hidden", save=["squares"]),
            named("hidden", "logits"),
        ),
        "p1 saves hidden while p2 offloads hidden and logits": (named("hidden"), _offload("hidden", "logits")),
        # An answer that makes an Offloadable of its own sends it to the host.
        "p1 offloads hidden and p2 logits from device to device": (
            _offload("hidden", to="device"),
            _offload("logits", to="device"),
        ),
    }
    return tuple(_case(name, *pair, rng) for name, pair in pairs.items())


def _net(w, v, x, *, name=checkpoint_name):
    hidden = name(x @ w, "hidden")
    logits = name(jnp.tanh(hidden) @ v, "logits")
    squares = name(logits * logits / 4, "squares")
    sines = name(jnp.sin(logits) / 2, "sines")
    return jnp.sum(jnp.sin(squares) * jnp.sin(sines))


def _products(operation, *operands, **parameters):
    # As dots_with_no_batch_dims_saveable, but it looks at all that a policy is told.
    if operation.name != "dot_general" or operands[0].dtype != jnp.float32:
        return False
    _, batch = parameters["dimension_numbers"]
    return batch == ((), ())


def _offload(*names, save=(), to="pinned_host"):
    return jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=save,
        names_which_can_be_offloaded=names,
        offload_src="device",
        offload_dst=to,
    )


def _case(case, p1, p2, rng):
    n, a, b, c = map(int, rng.permutation([5, 6, 7, 8, 9])[:4])
    return Case(case, _arrays((a, b), (b, c), (n, a)), **_under(p1, p2))


def _under(p1, p2):
    def apply(answer):
        policy = answer(p1, p2)
        # policy=None would mean to save nothing. What is no policy is handed on, for capture to say what it is.
        return jax.checkpoint(_net, policy=policy) if callable(policy) else policy

    return {"apply": apply, "function": _net}


def _asked(rng):
    """Two policies of which each has one answer to all operations but a few, which it answers in any way.

    They take nothing but what JAX tells for a question. Everything is asked twice or more, in an order drawn anew.
    """
    asked, besides = _operations(rng), _operations(rng)[:6]
    operations = (*asked, *besides)
    kinds = [*_ANSWERS.items(), *(("Offloadable(src, dst)", place) for place in _places(rng))]
    anything = [said for _, said in kinds]

    def policy(says):
        said = [says] * len(asked) + [anything[number] for number in rng.integers(len(anything), size=len(besides))]
        told = dict(zip(map(_key, operations), said, strict=True))

        def asked_by_whoever(operation, *operands, **parameters):
            try:
                return told[_key((operation, operands, parameters))]
            except KeyError:
                raise TypeError("a policy is given other arguments than those that JAX gave.") from None

        return asked_by_whoever

    def question(first, second):
        order = rng.permutation([*range(len(operations))] * (20 if rng.random() < 0.1 else 2))
        return Question(
            f"p1 says {_spelled(first[1])}, p2 says {_spelled(second[1])}",
            (policy(first[1]), policy(second[1])),
            ask=lambda returned: _in_short(asked, answers(returned, operations, order)[: len(asked)]),
            structure={"p1": first[0], "p2": second[0]},
        )

    return tuple(question(first, second) for first in kinds for second in kinds)


def _places(rng):
    """To the host, as usual, and two other ways."""
    here, there, elsewhere = map(str, rng.permutation(["device", "unpinned_host", "another_device"]))
    return Offloadable("device", "pinned_host"), Offloadable(here, there), Offloadable(elsewhere, here)


def _operations(rng):
    """Names alike but for their end or case, and what else JAX asks about: of many dtypes, with one operand to four."""
    word = "".join(rng.choice(list("abcdefgh"), size=5))
    n, a, b = map(int, rng.permutation([5, 6, 7, 8, 9])[:3])

    def function(x, w, half, whole, mask):
        checkpoint_name(x, "hidden")
        checkpoint_name(half, "hidden")
        checkpoint_name(x, word)
        checkpoint_name(half, f"{word}_")
        checkpoint_name(whole, word.upper())
        checkpoint_name(mask, "")
        jax.lax.dot(x, w)
        jax.lax.dot_general(half, half, (((1,), (1,)), ((0,), (0,))))
        jax.lax.sin(x)
        jax.lax.add(half, half)
        jax.lax.select_n(mask, x, x)
        jax.lax.concatenate([whole, whole, whole, whole], 0)
        jax.lax.reduce_sum(x, [0])
        jax.lax.argmax(half, 1, jnp.int32)
        jax.lax.convert_element_type(whole, jnp.float32)
        _clipped(x)

    shapes = (n, a), (a, b), (n, a), (n,), (n, a)
    dtypes = jnp.float32, jnp.float32, rng.choice([jnp.bfloat16, jnp.float16]), jnp.int32, jnp.bool_
    return operations_of(function, *map(jax.ShapeDtypeStruct, shapes, dtypes))


@jax.custom_jvp
def _clipped(x):
    return jax.lax.max(x, x)


_clipped.defjvps(lambda tangent, value, x: tangent)


def _key(told):
    # By identity: a policy that asks another one hands on what it was given.
    primitive, operands, parameters = told
    return primitive, *map(id, operands), *((name, id(parameters[name])) for name in sorted(parameters))


def _spelled(answer):
    return {id(Saveable): "Saveable", id(Recompute): "Recompute"}.get(id(answer), str(answer))


def _in_short(operations, said):
    """One answer, if all operations get the same one; else which operations get which."""
    about: dict[str, list[str]] = {}
    for operation, answer in zip(operations, said, strict=True):
        about.setdefault(answer, []).append(str(operation))
    *few, (most, _) = sorted(about.items(), key=lambda each: len(each[1]))
    return "; ".join([f"{answer}, about {', '.join(which[:3])}" for answer, which in few] + [most])


def _arrays(*shapes):
    return tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)


shown = Case(
    "where p1 offloads hidden and p2 saves logits",
    _arrays((64, 256), (256, 128), (256, 64)),
    **_under(_offload("hidden"), jax.checkpoint_policies.save_only_these_names("logits")),
)
