"""Right answers to best_placement, spelled in many ways."""

import dataclasses
import functools

import equinox as eqx
import jax
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes


@passes
def wrapped_in_a_list(stages):
    wrapped = [*map(jax.checkpoint, stages[:-1]), stages[-1]]
    return lambda x: functools.reduce(lambda x, stage: stage(x), wrapped, x)


@passes
def by_its_number(stages):
    @jax.jit
    def run(x):
        for number, stage in enumerate(stages):
            x = stage(x) if number == len(stages) - 1 else jax.remat(stage)(x)
        return x

    return run


@passes
def recursive(stages):
    first, *rest = stages
    if not rest:
        return first
    following = recursive(rest)
    return lambda x: following(jax.checkpoint(first)(x))


@passes
def all_kept_of_the_last(stages):
    policies = [jax.checkpoint_policies.nothing_saveable] * (len(stages) - 1)
    policies.append(jax.checkpoint_policies.everything_saveable)

    def run(x):
        for stage, policy in zip(stages, policies, strict=True):
            x = jax.checkpoint(stage, policy=policy)(x)
        return x

    return run


@passes
def closed_over(stages):
    def run(x):
        for stage in stages[:-1]:
            x = jax.checkpoint(lambda x, stage=stage: jax.jit(stage)(x))(x)
        return stages[-1](x)

    return run


@RIGHT.passes_with_advice
def without_a_barrier(stages):
    def run(x):
        for stage in stages[:-1]:
            x = jax.checkpoint(stage, prevent_cse=False)(x)
        return stages[-1](x)

    return run


@passes
def of_a_class(stages):
    class Chain:
        def __init__(self, stages):
            *self.earlier, self.last = stages

        def __call__(self, x):
            for stage in self.earlier:
                x = jax.checkpoint(stage)(x)
            return self.last(x)

    return Chain(stages)


@passes
def of_a_dataclass(stages):
    @dataclasses.dataclass  # compared by its fields, and so without a hash
    class Chain:
        earlier: list
        last: object

        def __call__(self, x):
            return self.last(functools.reduce(lambda x, stage: stage(x), self.earlier, x))

    return Chain([*map(jax.checkpoint, stages[:-1])], stages[-1])


@passes
def equinox_layers(stages):
    wrapped = [*map(eqx.filter_checkpoint, stages[:-1]), stages[-1]]
    return eqx.nn.Sequential([*map(eqx.nn.Lambda, wrapped)])


@passes
def a_partial(stages):
    def run(earlier, last, x):
        for stage in earlier:
            x = jax.checkpoint(stage)(x)
        return last(x)

    *earlier, last = stages
    return functools.partial(run, tuple(earlier), last)


@passes
def a_generator(stages):
    def wrapped():
        yield from map(jax.checkpoint, stages[:-1])
        yield stages[-1]

    def run(x):
        for stage in wrapped():
            x = stage(x)
        return x

    return run


@passes
def rules_by_hand(stages):
    def keeping_its_input(stage):
        function = jax.custom_vjp(stage)
        function.defvjp(lambda x: (stage(x), x), lambda x, ct: jax.vjp(stage, jax.lax.optimization_barrier(x))[1](ct))
        return function

    return lambda x: stages[-1](functools.reduce(lambda x, stage: keeping_its_input(stage)(x), stages[:-1], x))


@passes
def of_a_batch_of_one(stages):
    def run(x):
        x = x[None]
        for stage in stages[:-1]:
            x = jax.checkpoint(jax.vmap(stage))(x)
        return jax.vmap(stages[-1])(x)[0]

    return run


@passes
def flat_between_stages(stages):
    def run(x):
        shape, wrapped = x.shape, [jax.jit(jax.remat(jax.jit(stage))) for stage in stages[:-1]]
        for stage in wrapped:
            x = stage(x.reshape(shape)).ravel()
        return stages[-1](x.reshape(shape))

    return run
