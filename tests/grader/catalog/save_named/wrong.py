"""Wrong answers to save_named, each with the finding that must name its mistake."""

import re

import jax
import jax.numpy as jnp
from sample_answers import Answers, also_run_backward

WRONG = Answers()
fails_with = WRONG.fails_with
policies = jax.checkpoint_policies
ALL = (
    "one of three names",
    "two of three names",
    "a list with a name that f does not have",
    "vmap over x, random names",
    "an empty list",
)


@fails_with(
    "also saved",
    "mlp_gate, f32[",
    "out, f32[",
    "exactly those in the list",
    hint="name_extra_residual_names_only",
    cases=ALL[:1],
)
def saves_all_names(f, names):
    return jax.checkpoint(f, policy=policies.save_any_names_but_these())


@fails_with("not saved", "mlp_gate, f32[", "Which policy", hint="jax_checkpoint_get_policy_all", cases=ALL[1:2])
def last_name_only(f, names):
    return jax.checkpoint(f, policy=policies.save_only_these_names(*names[-1:]))


@fails_with("raises", "IndexError", "if the list is empty", hint="call_function_without_any_names")
def first_name_at_least(f, names):
    return jax.checkpoint(f, policy=policies.save_only_these_names(names[0], *names[1:]))


@fails_with(
    "also saved", "extra residual", "Which function marks", hint="function_takes_policy_return_function", cases=ALL[4:]
)
def f_itself_for_no_name(f, names):
    return jax.checkpoint(f, policy=policies.save_only_these_names(*names)) if names else f


# The additional values that it saves differ between JAX's two rematerializations.
@fails_with("also saved", "extra residual", "values without a name", hint="forward_pass_saves_values_no", cases=ALL[:1])
def unnamed_values_too(f, names):
    def policy(operation, *_, **parameters):
        return operation.name != "name" or parameters["name"] in names

    return jax.checkpoint(f, policy=policy)


@fails_with("raises", "KeyError: 'name'", "not only for named values", hint="print_policy_called_operations_parameter")
def asks_every_operation_for_its_name(f, names):
    return jax.checkpoint(f, policy=lambda operation, *_, **parameters: parameters["name"] in names)


@fails_with("raises", "unhashable", "a list of names, or does it take each", hint="mini_example_function_makes_policy")
def names_given_whole(f, names):
    return jax.checkpoint(f, policy=policies.save_only_these_names(names))


@fails_with("also saved", "Which function marks", hint="function_takes_policy_return_function", cases=ALL[:1])
def no_checkpoint(f, names):
    return f


@fails_with("also saved", "h_scale, f32[", hint="name_extra_residual_names_only", cases=ALL[2:3])
def named_by_its_first_letter(f, names):
    letters = {name[0] for name in names}
    picked = ["h_scale"] if letters == {"h", "o"} and "h" in names else []
    return jax.checkpoint(f, policy=policies.save_only_these_names(*names, *picked))


@fails_with("not saved", "mlp, f32[2,", "out, f32[2,", hint="jax_checkpoint_get_policy_all", cases=ALL[3:4])
def has_the_names_by_heart(f, names):
    known = {"mlp", "mlp_gate", "out", "h", "h_scale"}
    return jax.checkpoint(f, policy=policies.save_only_these_names(*known.intersection(names)))


@fails_with("wrong value", "twice the value of f", hint="call_function_return_should_run")
def the_sum_of_two_runs(f, names):
    kept = jax.checkpoint(f, policy=policies.save_only_these_names(*names))
    return lambda *arguments: kept(*arguments) + f(*arguments)


@fails_with("wrong gradient", " up", "zero everywhere", hint="jax_checkpoint_changes_no_gradient")
def without_gradient(f, names):
    return lambda *arguments: jax.lax.stop_gradient(f(*arguments)) + 0 * jnp.sum(arguments[0])


@fails_with(
    "wrong type", "returns a bool array", "What should save_named(f, names) return?", hint="save_named_f_names_returns"
)
def the_policy(f, names):
    return policies.save_only_these_names(*names)


@fails_with("wrong type", "returns a str, not a function", hint="save_named_f_names_returns")
def no_function(f, names):
    return "f"


@fails_with(
    "raises", "policy", "a policy as `policy=`, or a function that makes one", hint="function_such_save_only_names"
)
def factory_for_policy(f, names):
    return jax.checkpoint(f, policy=policies.save_only_these_names)


@fails_with("argument order", "(names, f)", hint="calls_save_named_f_names")
def names_first(names, f):
    return jax.checkpoint(f, policy=policies.save_only_these_names(*names))


# The following answers are right for few, dissimilar names and float32 values.


def matching(says):
    def answer(f, names):
        def policy(operation, *_, **parameters):
            return operation.name == "name" and says(parameters["name"], names)

        return jax.checkpoint(f, policy=policy)

    return answer


for name, kind, words, hint, says in (
    (
        "capital_letters_do_not_matter",
        "also saved",
        "eight similar names",
        "name_extra_residual_names_only",
        lambda value, names: value.lower() in [each.lower() for each in names],
    ),
    (
        "blanks_do_not_matter",
        "also saved",
        "each compared as a whole",
        "name_extra_residual_names_only",
        lambda value, names: value.strip() in [each.strip() for each in names],
    ),
    (
        "no_letters",
        "not saved",
        "bfloat16",
        "jax_checkpoint_get_policy_all",
        lambda value, names: value in names and (len(value) > 1 or value == "h"),
    ),
):
    fails_with(kind, words, hint=hint, name=name)(matching(says))


@fails_with("not saved", "eight similar names", hint="jax_checkpoint_get_policy_all")
def what_is_named_twice_is_taken_back(f, names):
    once = [name for name in names if list(names).count(name) == 1]
    return jax.checkpoint(f, policy=policies.save_only_these_names(*once))


@fails_with(
    "also saved",
    "_out'",
    "exactly those in the list",
    hint=("jax_checkpoint_get_policy_all", "name_extra_residual_names_only"),
)
def names_as_regular_expressions(f, names):
    asked = "|".join(names)

    def policy(operation, *operands, **parameters):
        return operation.name == "name" and bool(asked) and re.fullmatch(asked, parameters["name"]) is not None

    return jax.checkpoint(f, policy=policy)


@fails_with(
    "recomputes",
    "How many times does your answer run f",
    hint="call_function_return_should_run",
    cases=ALL[:1],
    beyond="Recomputes.count",
)
def first_product_once_more(f, names):
    def function(*arguments):
        *weights, x = arguments
        kept = jax.checkpoint(f, policy=policies.save_only_these_names(*names))
        return kept(*weights, also_run_backward(jnp.matmul, x, x, *weights[:1]) if weights else x)

    return function


def first_product_once_more_where(holds):
    """Right, but one matmul is recomputed once more where this holds of the names and the number of arguments."""

    def answer(f, names):
        right, wrong = (
            jax.checkpoint(f, policy=policies.save_only_these_names(*names)),
            first_product_once_more(f, names),
        )
        last = [name.split("/")[-1] for name in names]
        return lambda *arguments: (wrong if holds(last, len(arguments)) else right)(*arguments)

    return answer


for place, (name, words, count) in enumerate(
    (
        ("first_product_once_more_for_one_name", ["mlp"], 4),
        ("first_product_once_more_for_two_names", ["mlp_gate", "out"], 4),
        ("first_product_once_more_for_a_list", ["h", "out"], 3),
        ("first_product_once_more_for_two_others", ["out", "mlp"], 4),
        ("first_product_once_more_for_no_name", [], 3),
    )
):
    answer = first_product_once_more_where(lambda *seen, asked=(words, count): seen == asked)
    answer.__name__ = name
    fails_with(
        "recomputes",
        "How many times does your answer run f",
        hint="call_function_return_should_run",
        cases=ALL[place : place + 1],
    )(answer)

answer = first_product_once_more_where(lambda names, count: len(names) == 8)
answer.__name__ = "first_product_once_more_for_eight_names"
fails_with("recomputes", "How many times does your answer run f", hint="call_function_return_should_run")(answer)


@fails_with("raises", "positional argument", hint="call_new_cell_arguments_own")
def weights_and_x(f, names):
    kept = jax.checkpoint(f, policy=policies.save_only_these_names(*names))

    def function(w, *others):
        *weights, x = others if others else (None,)
        return kept(w, *weights, x)

    return function
