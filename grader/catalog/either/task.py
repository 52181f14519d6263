"""What an answer is tried on."""

import itertools
import string

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import Offloadable, Recompute, Saveable, checkpoint_name

from grader.exercises.case_functions import float32_arrays
from grader.exercises.policies import checkpointed, in_short, named, unnamed
from grader.exercises.spec import Case, OneOf, Question

parameters = ("p1", "p2")
_ANSWERS = {"True": True, "Saveable": Saveable, "False": False, "Recompute": Recompute}
ranges = {policy: OneOf((*_ANSWERS, "Offloadable(src, dst)")) for policy in parameters}
signature = "either(p1, p2)"


def cases(rng):
    """Return one function under six pairs of policies, with random shapes; and every pair of answers, asked for
    directly."""
    return (*_differentiated_cases(rng), *_policy_questions(rng))


def _differentiated_cases(rng):
    """Return the cases that are differentiated. All widths of a case differ."""
    saving = jax.checkpoint_policies.save_only_these_names
    offloaded_products = jax.checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    pairs = {
        "p1 saves hidden and squares, p2 saves squares and logits": (
            saving("hidden", "squares"),
            saving("squares", "logits"),
        ),
        "p1 saves sines, p2 saves matmuls": (saving("sines"), _products),
        "p1 offloads matmuls, p2 saves sines": (offloaded_products, saving("sines")),
        "p1 offloads hidden and saves squares, p2 saves hidden and logits": (
            _offload("hidden", save=["squares"]),
            saving("hidden", "logits"),
        ),
        "p1 saves hidden, p2 offloads hidden and logits": (saving("hidden"), _offload("hidden", "logits")),
        # An answer that makes an Offloadable of its own sends it to the host.
        "p1 offloads hidden and p2 offloads logits, both to the device": (
            _offload("hidden", to="device"),
            _offload("logits", to="device"),
        ),
    }
    return tuple(_make_case(name, *pair, rng) for name, pair in pairs.items())


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


def _make_case(case, p1, p2, rng):
    n, a, b, c = map(int, rng.permutation([5, 6, 7, 8, 9])[:4])
    return Case(case, float32_arrays((a, b), (b, c), (n, a)), **_checkpointed_under(p1, p2))


def _checkpointed_under(p1, p2):
    return {"apply": lambda answer: checkpointed(_net, answer(p1, p2)), "function": _net}


def _policy_questions(rng):
    """Return two policies of which each has one answer to all operations but a few, to which they say anything.

    They take nothing but what JAX tells for a question. Everything is asked twice or more, in random order.
    """
    word, other = ("".join(rng.choice(list(string.ascii_lowercase), size=5)) for _ in range(2))
    long = f"layer_{rng.integers(100)}/{word}/{other}", word * 8
    names = "hidden", "hidden", "logits", "squares", "sines", word, word + "_", word.upper(), other, *long, ""
    # Of equal shapes and dtypes JAX has one object, by which an operation is known: besides, names have other dtypes.
    asked, besides = (*named(names, rng), *unnamed(rng)), named((*names[2:], *names[:2]), rng, ends=False)
    kinds = [*_ANSWERS.items(), *(("Offloadable(src, dst)", place) for place in _offload_places(rng))]
    anything = [said for _, said in kinds]
    often = rng.integers(len(kinds) ** 2)

    def policy(answer):
        drawn = [anything[number] for number in rng.integers(len(anything), size=len(besides))]
        answers = dict(zip(map(_operation_key, (*asked, *besides)), [answer] * len(asked) + drawn, strict=True))

        def says(operation, *operands, **parameters):
            try:
                return answers[_operation_key((operation, operands, parameters))]
            except KeyError:
                raise TypeError("your policy passes other arguments than those that JAX passed to it.") from None

        return says

    def question(number, first, second):
        among = [*asked, *besides] * (20 if number == often else 2)
        rng.shuffle(places := list(range(len(among))))
        return Question(
            f"p1 returns {_result_text(first[1])}, p2 returns {_result_text(second[1])}",
            (policy(first[1]), policy(second[1])),
            ask=lambda returned: in_short(returned, asked, [among[place] for place in places]),
            structure={"p1": first[0], "p2": second[0]},
        )

    return tuple(question(number, *pair) for number, pair in enumerate(itertools.product(kinds, kinds)))


def _offload_places(rng):
    """To the host, as usual, from elsewhere to the same host, and from there to somewhere else; the last stays where it
    is, and is an answer like others."""
    here, there, elsewhere = map(str, rng.permutation(["unpinned_host", "another_device", "a_third_device"]))
    return tuple(
        Offloadable(src, dst)
        for src, dst in (("device", "pinned_host"), (here, "pinned_host"), (here, there), (elsewhere, elsewhere))
    )


def _operation_key(told):
    # By identity: a policy that asks another one hands on what it was given.
    primitive, operands, parameters = told
    return primitive, *map(id, operands), *((name, id(parameters[name])) for name in sorted(parameters))


def _result_text(answer):
    return {id(Saveable): "Saveable", id(Recompute): "Recompute"}.get(id(answer), str(answer))


shown = Case(
    "where p1 offloads hidden and p2 saves logits",
    float32_arrays((64, 256), (256, 128), (256, 64)),
    **_checkpointed_under(_offload("hidden"), jax.checkpoint_policies.save_only_these_names("logits")),
)
