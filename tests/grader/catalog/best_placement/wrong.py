"""Wrong answers to best_placement, each with the finding that must name its mistake."""

import functools
import itertools

import jax
from sample_answers import Answers, also_run_backward

WRONG = Answers()
fails_with = WRONG.fails_with


def chain(stages):
    return lambda x: functools.reduce(lambda x, stage: stage(x), stages, x)


def wrapping(stages, which):
    return chain([jax.checkpoint(stage) if wrapped else stage for stage, wrapped in zip(stages, which, strict=True)])


def right(stages):
    return wrapping(stages, [True] * (len(stages) - 1) + [False])


@fails_with("recomputes", "12 matmuls", "does not save the last stage")
def wraps_all(stages):
    return chain([*map(jax.checkpoint, stages)])


@fails_with("also saved", "stage 1's first cosine", "stage 1's second cosine", "of its own")
def wraps_the_last_only(stages):
    return wrapping(stages, [False] * (len(stages) - 1) + [True])


@fails_with("also saved", "stage 1's first cosine", "Which function marks")
def wraps_none(stages):
    return chain(stages)


@fails_with("recomputes", "matmuls")
def one_checkpoint_around_all(stages):
    return jax.checkpoint(chain(stages))


@fails_with("not saved", "stage 1's output", "is it the output of another stage")
def one_checkpoint_around_the_earlier_ones(stages):
    earlier = jax.checkpoint(chain(stages[:-1]))
    return lambda x: stages[-1](earlier(x))


@fails_with("not saved", "stage 1's output", "recomputes", "a checkpoint of its own")
def each_in_the_checkpoint_of_the_next(stages):
    first, *others = stages
    return functools.reduce(lambda before, stage: lambda x: stage(jax.checkpoint(before)(x)), others, first)


@fails_with("raises", "weak reference", "get the whole list")
def the_list_checkpointed(stages):
    return jax.checkpoint(stages)


@fails_with("not saved", "the last stage's first cosine")
def wraps_a_single_stage(stages):
    return jax.checkpoint(stages[0]) if len(stages) == 1 else right(stages)


@fails_with("also saved", "stage 1's first cosine")
def wraps_only_when_there_are_many(stages):
    return right(stages) if len(stages) > 2 else chain(stages)


@fails_with("also saved", "stage 1's first cosine", "f32[1]")
def wraps_nothing_of_width_one(stages):
    return lambda x: (chain if x.shape[-1] == 1 else right)(stages)(x)


@fails_with("also saved", "stage 3's first cosine", "stage 3's second cosine")
def wraps_the_first_two(stages):
    return wrapping(stages, [number < min(2, len(stages) - 1) for number in range(len(stages))])


@fails_with("wrong value", "with the last stage run first", "In which order")
def in_the_other_order(stages):
    return right(stages[::-1])


@fails_with("wrong value", "without the last stage")
def last_stage_dropped(stages):
    return chain([jax.checkpoint(stage) for stage in stages[:-1]])


@fails_with("wrong value", "the last stage alone", "what the previous stage returned")
def each_stage_on_x(stages):
    def run(x):
        for stage in stages[:-1]:
            jax.checkpoint(stage)(x)
        return stages[-1](x)

    return run


@fails_with("wrong value", "the second-to-last stage run instead", "defined in a loop")
def functions_of_a_loop(stages):
    wrapped = []
    for stage in stages[:-1]:
        wrapped.append(lambda x: jax.checkpoint(stage)(x))  # noqa: B023
    return chain([*wrapped, stages[-1]])


@fails_with("wrong value", "the last stage run instead of each", "Which stage does yours call")
def functions_of_a_loop_over_all(stages):
    wrapped = [lambda x: jax.checkpoint(stage)(x) for stage in stages]  # noqa: B023
    return chain([*wrapped[:-1], stages[-1]])


@fails_with("also saved", "'s first cosine", "the same function")
def the_last_by_its_identity(stages):
    return wrapping(stages, [stage is not stages[-1] for stage in stages])


@fails_with("recomputes", "matmuls")
def the_last_by_its_index(stages):
    return wrapping(stages, [stages.index(stage) < len(stages) - 1 for stage in stages])


@fails_with("wrong type", "changes the list of stages", "How do you make a new one?")
def last_taken_out(stages):
    last = stages.pop()
    return chain([*map(jax.checkpoint, stages), last])


@fails_with("wrong type", "changes the list of stages", "belongs to the caller")
def wrapped_in_place(stages):
    for number in range(len(stages) - 1):
        stages[number] = jax.checkpoint(stages[number])
    return chain(stages)


@fails_with("raises", "missing 1 required positional argument: 'x'", "function that it returns take")
def takes_x_too(stages, x):
    return right(stages)(x)


@fails_with("raises", "RecursionError", "defined in a loop", "which f is that")
def late_binding(stages):
    run = lambda x: x  # noqa: E731
    for stage in stages:
        run = lambda x: stage(run(x))  # noqa: B023, E731
    return run


@fails_with("wrong type", "returns a list, not a function", "What should best_placement(stages) return?")
def a_list(stages):
    return [*map(jax.checkpoint, stages[:-1]), stages[-1]]


@fails_with("wrong type", "returns None")
def no_return(stages):
    right(stages)


@fails_with("raises", "positional argument", "What does the function that it returns take")
def called_without_x(stages):
    return right(stages)()


@fails_with("extra matmuls", "depends on the cotangent")
def again_behind_the_cotangent(stages):
    """Every stage checkpointed by hand, the last one's recomputation made to look as if it needed the cotangent."""

    @jax.custom_vjp
    def last(x):
        return stages[-1](x)

    def forward(x):
        z, pullback = jax.vjp(stages[-1], x)
        return z, (x, pullback)

    def backward(kept, ct):
        x, pullback = kept
        return (pullback(ct)[0] + 0 * stages[-1](x + 0 * ct),)

    last.defvjp(forward, backward)
    return right([*stages[:-1], last])


def with_a_second_run(count):
    """Right, but for lists of this length the stages run once more, all of it recomputed."""

    def answer(stages):
        if len(stages) != count:
            return right(stages)
        return lambda x: (right(stages)(x) + jax.checkpoint(chain(stages))(x)) / 2

    return answer


for length in (1, 2, 8):
    twice = with_a_second_run(length)
    twice.__name__ = f"stages_twice_for_{length}"
    fails_with("recomputes", "values does the backward pass need first")(twice)


# Slips


@fails_with("wrong value", "the last stage run twice", "after the loop")
def the_last_in_the_loop_too(stages):
    def run(x):
        for stage in stages:
            x = jax.checkpoint(stage)(x)
        return stages[-1](x)

    return run


@fails_with("wrong value", "the first stage alone", "inside its loop or after it")
def returns_in_the_loop(stages):
    def run(x):
        for number, stage in enumerate(stages, 1):
            x = stage(x) if number == len(stages) else jax.checkpoint(stage)(x)
            return x

    return run


@fails_with("wrong value", "without the first stage")
def first_stage_dropped(stages):
    return wrapping(stages[1:], [True] * (len(stages) - 2) + [False] * (len(stages) > 1))


@fails_with("raises", "Is stage(x) a function")
def a_value_checkpointed(stages):
    def run(x):
        for stage in stages[:-1]:
            x = jax.checkpoint(stage(x))
        return stages[-1](x)

    return run


@fails_with("raises", "positional argument", "by keyword only")
def policy_by_position(stages):
    keep = jax.checkpoint_policies.nothing_saveable
    return chain([*(jax.checkpoint(stage, keep) for stage in stages[:-1]), stages[-1]])


# What is right for some of what the page allows, and wrong for the rest.


@fails_with("also saved", "'s first cosine")
def first_four_only(stages):
    return wrapping(stages, [number < min(len(stages) - 1, 4) for number in range(len(stages))])


@fails_with("not saved", "stage 1's output")
def pairs_of_many(stages):
    if len(stages) <= 4:
        return right(stages)
    pairs = [chain(stages[:-1][start : start + 2]) for start in range(0, len(stages) - 1, 2)]
    return chain([*map(jax.checkpoint, pairs), stages[-1]])


@fails_with("also saved", "'s second cosine")
def two_kept_of_many(stages):
    kept = 2 if len(stages) > 4 else 1
    return wrapping(stages, [number < len(stages) - kept for number in range(len(stages))])


@fails_with("also saved", "stage 2's first cosine", "the same function")
def each_function_once(stages):
    return wrapping(stages, [stage not in stages[:number] for number, stage in enumerate(stages[:-1])] + [False])


@fails_with("also saved", "stage 1's first cosine", "the same function")
def not_two_alike_in_a_row(stages):
    return wrapping(stages, [stage is not following for stage, following in itertools.pairwise(stages)] + [False])


@fails_with("also saved", "stage 1's first cosine, f16[")
def in_single_precision_only(stages):
    return lambda x: (right if x.dtype == "float32" else chain)(stages)(x)


@fails_with("also saved", "stage 1's first cosine")
def of_two_axes_only(stages):
    return lambda x: (right if x.ndim == 2 else chain)(stages)(x)


@fails_with("recomputes", "matmuls")
def one_row_otherwise(stages):
    return lambda x: (jax.checkpoint(chain(stages)) if x.shape[0] == 1 else right(stages))(x)


@fails_with("wrong value", "this is x itself", "a generator, map or zip", " before")
def stages_in_an_iterator(stages):
    return chain(iter([*map(jax.checkpoint, stages[:-1]), stages[-1]]))


@fails_with("also saved", "stage 1's first cosine")
def none_of_an_odd_number_on_three_axes(stages):
    return lambda x: (chain if x.ndim == 3 and len(stages) % 2 else right)(stages)(x)


@fails_with("also saved", "stage 1's first cosine")
def none_where_half_are_the_same_function(stages):
    return (chain if 2 * len({*map(id, stages)}) <= len(stages) else right)(stages)


@fails_with("also saved", "stage 1's first cosine")
def nothing_of_many_numbers(stages):
    return lambda x: (wraps_none if x.size > 300 else right)(stages)(x)


@fails_with("also saved", "stage 1's first cosine", "called twice before")
def none_in_every_third_call(stages):
    calls = []

    def run(x):
        calls.append(x.shape)
        return (right if len(calls) % 3 else wraps_none)(stages)(x)

    return run


@fails_with("recomputes", "values does the backward pass need first", beyond="Recomputes.count", steps=2)
def first_stage_once_more(stages):
    return lambda x: right(stages)(also_run_backward(stages[0], x, x))


def repeats(stages):
    return len({*stages}) < len(stages)


@fails_with("recomputes", "values does the backward pass need first")
def first_stage_once_more_if_all_differ(stages):
    return (right if repeats(stages) else first_stage_once_more)(stages)


@fails_with("recomputes", "values does the backward pass need first")
def first_stage_once_more_if_one_repeats(stages):
    return (first_stage_once_more if repeats(stages) else right)(stages)
