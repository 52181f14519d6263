"""Wrong answers to best_placement, each with the finding that must name its mistake."""

import functools

import jax
from sample_answers import Answers, also_run_backward

from rematscope import trace

WRONG = Answers()
fails_with = WRONG.fails_with


def chain(stages):
    return lambda x: functools.reduce(lambda x, stage: stage(x), stages, x)


def shape_of(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def residual_bytes(stage, x):
    return trace(stage, shape_of(x)).bytes_by_kind().get("computed", 0)


def pays(number, saved, given):
    return number == 0 or saved > given


def placing(stages, wraps=pays, wrapper=jax.checkpoint, bytes_of=residual_bytes):
    """Wrap the stages for which `wraps` says so, given their numbers, the bytes of their residuals and of their
    inputs."""

    def run(x):
        for number, stage in enumerate(stages):
            wrapped = wraps(number, bytes_of(stage, x), x.size * x.dtype.itemsize)
            x = (wrapper(stage) if wrapped else stage)(x)
        return x

    return run


right = placing


@fails_with("also saved", "stage 2's output", "how large is that", hint="decision_for_a_stage")
def wraps_all(stages):
    return chain([*map(jax.checkpoint, stages)])


@fails_with("also saved", "stage 1's cosine 1", "how large is that", hint="input_of_the_first_stage")
def first_stage_like_the_others(stages):
    return placing(stages, lambda number, saved, given: saved > given)


@fails_with("not saved", "'s output", "one stage", hint="many_stages_inside_checkpoints_value")
def neighbors_in_one_checkpoint(stages):
    """Stages that follow one another and pay share one checkpoint."""

    def run(x):
        together, output = [], x
        for number, stage in enumerate(stages):
            if pays(number, residual_bytes(stage, output), output.size * output.dtype.itemsize):
                together.append(stage)
                continue
            output = stage(jax.checkpoint(chain(together))(output) if together else output)
            together = []
        return jax.checkpoint(chain(together))(output) if together else output

    return run


@fails_with("raises", "weak reference", "pass the whole list", hint="jax_checkpoint_stage_x_parentheses")
def the_list_checkpointed(stages):
    return jax.checkpoint(stages)


@fails_with("also saved", "stage 1's cosine 1", hint="backward_pass_recomputes_nothing_cases")
def not_for_a_single_stage(stages):
    return stages[0] if len(stages) == 1 else right(stages)


@fails_with("wrong value", "in reverse order", "In what order", hint="go_through_list_write_down")
def in_the_other_order(stages):
    return right(stages[::-1])


@fails_with("wrong value", "the last stage is missing", hint="go_through_list_write_down")
def last_stage_dropped(stages):
    return right(stages[:-1])


@fails_with(
    "wrong value",
    "only the last stage is applied",
    "the result of the previous stage",
    hint="go_through_list_write_down",
)
def each_stage_on_x(stages):
    def run(x):
        for stage in stages:
            output = jax.checkpoint(stage)(x)
        return output

    return run


@fails_with(
    "wrong value", "the second-to-last stage runs in place", "defined in a loop", hint="function_defined_loop_looks_up"
)
def functions_of_a_loop(stages):
    wrapped = []
    for stage in stages[:-1]:
        wrapped.append(lambda x: jax.checkpoint(stage)(x))  # noqa: B023
    return chain([*wrapped, stages[-1]])


@fails_with(
    "wrong value",
    "the last stage runs in place of every",
    "Which stage does your function call",
    hint="function_defined_loop_looks_up",
)
def functions_of_a_loop_over_all(stages):
    wrapped = [lambda x: jax.checkpoint(stage)(x) for stage in stages]  # noqa: B023
    return chain([*wrapped[:-1], stages[-1]])


@fails_with(
    "wrong type",
    "changes the list of stages",
    "How do you make a new list instead?",
    hint="list_belongs_caller_uses_later",
)
def first_taken_out(stages):
    first = stages.pop(0)
    others = placing(stages, lambda number, saved, given: saved > given)
    return lambda x: others(jax.checkpoint(first)(x))


@fails_with(
    "raises",
    "RecursionError",
    "defined in a loop",
    "what function does `f` refer to",
    hint="function_defined_loop_looks_up",
)
def late_binding(stages):
    run = lambda x: x  # noqa: E731
    for stage in stages:
        run = lambda x: stage(run(x))  # noqa: B023, E731
    return run


@fails_with(
    "wrong type",
    "returns a list, not a function",
    "What should best_placement(stages) return?",
    hint="best_placement_stages_runs_no",
)
def a_list(stages):
    return [*map(jax.checkpoint, stages[:-1]), stages[-1]]


@fails_with("wrong type", "returns None", hint="best_placement_stages_runs_no")
def no_return(stages):
    right(stages)


@fails_with(
    "raises",
    "positional argument",
    "What argument does the function that it returns take",
    hint="best_placement_stages_called_before",
)
def called_without_x(stages):
    return right(stages)()


@fails_with("extra matmuls", "depends on the cotangent", hint="take_list_three_stages_many")
def again_behind_the_cotangent(stages):
    """The first stage runs once more in the backward pass, as if it needed the cotangent."""

    @jax.custom_vjp
    def first(x):
        return stages[0](x)

    def backward(x, ct):
        (gradient,) = jax.vjp(stages[0], jax.lax.optimization_barrier(x))[1](ct)
        return (gradient + 0 * stages[0](x + 0 * gradient),)

    first.defvjp(lambda x: (stages[0](x), x), backward)
    return placing([first, *stages[1:]], lambda number, saved, given: number > 0 and saved > given)


@fails_with("recomputes", "Which stages does the backward pass recompute", hint="take_list_three_stages_many")
def stages_twice_for_two(stages):
    """Right, except that two stages run once more, and all of it is recomputed."""
    if len(stages) != 2:
        return right(stages)
    return lambda x: (right(stages)(x) + jax.checkpoint(chain(stages))(x)) / 2


# Slips


@fails_with("wrong value", "the last stage runs twice", "after the loop", hint="go_through_list_write_down")
def the_last_in_the_loop_too(stages):
    def run(x):
        for stage in stages:
            x = jax.checkpoint(stage)(x)
        return stages[-1](x)

    return run


@fails_with(
    "wrong value", "only the first stage is applied", "inside the loop or after it", hint="go_through_list_write_down"
)
def returns_in_the_loop(stages):
    def run(x):
        for stage in stages:
            x = jax.checkpoint(stage)(x)
            return x

    return run


@fails_with("wrong value", "the first stage is missing", hint="go_through_list_write_down")
def first_stage_dropped(stages):
    return right(stages[1:])


@fails_with("raises", "Is `stage(x)` a function", hint="jax_checkpoint_stage_x_parentheses")
def a_value_checkpointed(stages):
    def run(x):
        for stage in stages[:-1]:
            x = jax.checkpoint(stage(x))
        return stages[-1](x)

    return run


@fails_with("raises", "positional argument", "must be passed by keyword", hint="jax_checkpoint_stage_x_parentheses")
def policy_by_position(stages):
    keep = jax.checkpoint_policies.nothing_saveable
    return placing(stages, wrapper=lambda stage: jax.checkpoint(stage, keep))


# Answers that are right for some inputs that the page allows and wrong for others.


@fails_with("also saved", "how large is that", hint="decision_for_a_stage")
def first_four_only(stages):
    return placing(stages, lambda number, *sizes: number < 4 and pays(number, *sizes))


@fails_with("not saved", "stage ", "one stage", hint="many_stages_inside_checkpoints_value")
def one_row_otherwise(stages):
    return lambda x: (jax.checkpoint(chain(stages)) if x.shape[0] == 1 else right(stages))(x)


@fails_with("wrong value", "it is x itself", "a generator, `map` or `zip`", " before", hint="loop_over_list_any_number")
def stages_in_an_iterator(stages):
    return chain(iter([*map(jax.checkpoint, stages[:-1]), stages[-1]]))


@fails_with("also saved", "stage 1's cosine 1", hint="recognize_first_stage_position_list")
def none_where_some_are_the_same_function(stages):
    return (chain if len({*map(id, stages)}) < len(stages) else right)(stages)


@fails_with(
    "recomputes",
    "Which stages does the backward pass recompute",
    hint="take_list_three_stages_many",
    beyond="Recomputes.count",
    steps=12,
)
def first_stage_once_more(stages):
    return lambda x: right(stages)(also_run_backward(stages[0], x, x))


def repeats(stages):
    return len({*stages}) < len(stages)


@fails_with("recomputes", "Which stages does the backward pass recompute", hint="recognize_first_stage_position_list")
def some_stages_once_more_if_one_repeats(stages):
    return (some_stages_once_more if repeats(stages) else right)(stages)


def some_stages_once_more(stages):
    return lambda x: right(stages)(also_run_backward(chain(stages[:4]), x, x))
