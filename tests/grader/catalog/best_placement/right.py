"""Right answers to best_placement, spelled in many ways."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from sample_answers import Answers

from rematscope import compare, trace

RIGHT = Answers()
passes = RIGHT.passes


def saved_bytes(function, x):
    return trace(function, jax.ShapeDtypeStruct(x.shape, x.dtype)).bytes_by_kind().get("computed", 0)


def pays(stage, x, first):
    return first or saved_bytes(stage, x) > x.size * x.dtype.itemsize


@passes
def wrapped_in_a_list(stages):
    def run(x):
        wrapped = [
            jax.checkpoint(stage) if pays(stage, x, number == 0) else stage for number, stage in enumerate(stages)
        ]
        return functools.reduce(lambda x, stage: stage(x), wrapped, x)

    return run


@passes
def compiled(stages):
    @jax.jit
    def run(x):
        for number, stage in enumerate(stages):
            x = jax.remat(stage)(x) if pays(stage, x, number == 0) else stage(x)
        return x

    return run


@passes
def recursive(stages, first=True):
    stage, *rest = stages

    def run(x):
        y = jax.checkpoint(stage)(x) if pays(stage, x, first) else stage(x)
        return recursive(rest, False)(y) if rest else y

    return run


@passes
def all_saved_where_it_does_not_pay(stages):
    nothing, everything = jax.checkpoint_policies.nothing_saveable, jax.checkpoint_policies.everything_saveable

    def run(x):
        for number, stage in enumerate(stages):
            x = jax.checkpoint(stage, policy=nothing if pays(stage, x, number == 0) else everything)(x)
        return x

    return run


@passes
def by_trying_both(stages):
    """Each stage both ways, in the function of all stages."""

    def chain(stages):
        return lambda x: functools.reduce(lambda x, stage: stage(x), stages, x)

    def run(x):
        chosen = list(stages)
        for number, stage in enumerate(stages):
            other = [*chosen[:number], jax.checkpoint(stage), *chosen[number + 1 :]]
            if saved_bytes(chain(other), x) < saved_bytes(chain(chosen), x):
                chosen = other
        return chain(chosen)(x)

    return run


@passes
def by_the_comparison(stages):
    def run(x):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        for number, stage in enumerate(stages):
            rows = compare({"plain": stage, "wrapped": jax.checkpoint(stage)}, shape)
            arguments = x.size * x.dtype.itemsize if number else 0
            x = (jax.checkpoint(stage) if rows["plain"].saved_bytes > arguments else stage)(x)
        return x

    return run


@passes
def by_each_residual(stages):
    def run(x):
        for number, stage in enumerate(stages):
            residuals = trace(stage, jax.ShapeDtypeStruct(x.shape, x.dtype)).residuals
            computed = sum(each.nbytes for each in residuals if each.kind == "computed")
            x = (jax.checkpoint(stage) if number == 0 or computed > x.size * x.dtype.itemsize else stage)(x)
        return x

    return run


@passes
def by_the_pullback(stages):
    """Counts the leaves of a pullback that have the axes of x, since weights have none of them."""

    def run(x):
        for number, stage in enumerate(stages):
            wide = jax.ShapeDtypeStruct((97, *x.shape), x.dtype)
            leaves = jax.tree.leaves(jax.eval_shape(lambda y, stage=stage: jax.vjp(jax.vmap(stage), y)[1], wide))
            saved = sum(leaf.size for leaf in leaves if leaf.shape[:1] == (97,))
            x = (jax.checkpoint(stage) if number == 0 or saved > wide.size else stage)(x)
        return x

    return run


@RIGHT.passes_with_advice
def without_a_barrier(stages):
    def run(x):
        for number, stage in enumerate(stages):
            x = jax.checkpoint(stage, prevent_cse=False)(x) if pays(stage, x, number == 0) else stage(x)
        return x

    return run


@passes
def of_a_dataclass(stages):
    @dataclasses.dataclass  # compared by its fields, and so without a hash
    class Chain:
        first: object
        others: list

        def __call__(self, x):
            x = jax.checkpoint(self.first)(x)
            for stage in self.others:
                x = jax.checkpoint(stage)(x) if pays(stage, x, False) else stage(x)
            return x

    return Chain(stages[0], stages[1:])


@passes
def equinox_layers(stages):
    def run(x):
        wrapped = [eqx.filter_checkpoint(stage) if pays(stage, x, not n) else stage for n, stage in enumerate(stages)]
        return eqx.nn.Sequential([*map(eqx.nn.Lambda, wrapped)])(x)

    return run


@passes
def decided_once_for_each_shape(stages):
    decisions = {}

    def run(x):
        if (x.shape, x.dtype) not in decisions:
            decisions[x.shape, x.dtype] = [pays(stage, x, number == 0) for number, stage in enumerate(stages)]
        for wrapped, stage in zip(decisions[x.shape, x.dtype], stages, strict=True):
            x = (jax.checkpoint(stage) if wrapped else stage)(x)
        return x

    return run


@passes
def rules_by_hand(stages):
    def keeping_its_input(stage):
        function = jax.custom_vjp(stage)
        function.defvjp(lambda x: (stage(x), x), lambda x, ct: jax.vjp(stage, jax.lax.optimization_barrier(x))[1](ct))
        return function

    def run(x):
        for number, stage in enumerate(stages):
            x = keeping_its_input(stage)(x) if pays(stage, x, number == 0) else stage(x)
        return x

    return run


@passes
def of_a_batch_of_one(stages):
    def run(x):
        x = x[None]
        for number, stage in enumerate(map(jax.vmap, stages)):
            x = jax.checkpoint(stage)(x) if pays(stage, x, number == 0) else stage(x)
        return jnp.squeeze(x, 0)

    return run
