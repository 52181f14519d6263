"""Wrong answers to all_but, each with the finding that must name its mistake."""

import re

import jax
import jax.numpy as jnp
from sample_answers import Answers, also_run_backward

WRONG = Answers()
fails_with = WRONG.fails_with
policies = jax.checkpoint_policies
ALL = ("one of three names", "a matmul without a name", "a name that f does not have", "vmap over x, random names")


# Which values these two save besides differs between JAX's two rematerializations.
@fails_with("also saved", "extra residual", "without a name", cases=ALL[:1])
def the_one_that_ignores_its_names(f, name):
    return jax.checkpoint(f, policy=policies.save_anything_except_these_names(name))


@fails_with("also saved", "extra residual", "without a name", cases=ALL[:1])
def unnamed_values_too(f, name):
    def policy(operation, *_, **parameters):
        return not (operation.name == "name" and parameters["name"] == name)

    return jax.checkpoint(f, policy=policy)


@fails_with("also saved", "intermediate value", "without a name", cases=ALL[1:2])
def unnamed_products_too(f, name):
    named = policies.save_any_names_but_these(name, "mix")

    def policy(operation, *operands, **parameters):
        alone = operation.name == "dot_general" and name == "mix"
        return alone or named(operation, *operands, **parameters)

    return jax.checkpoint(f, policy=policy)


@fails_with("also saved", "mlp, f32[", "is it the name to leave out", cases=ALL[:1])
def saves_that_one_only(f, name):
    return jax.checkpoint(f, policy=policies.save_only_these_names(name))


@fails_with("also saved", "mlp, f32[", "is it the name to leave out", cases=ALL[:1])
def saves_all_names(f, name):
    return jax.checkpoint(f, policy=policies.save_any_names_but_these())


@fails_with("not saved", "mlp_gate, f32[", "out, f32[", "return True for every name", cases=ALL[:1])
def saves_nothing(f, name):
    return jax.checkpoint(f)


@fails_with("not saved", "mlp_gate, f32[", "other than the one to leave out", cases=ALL[:1])
def leaves_out_by_prefix(f, name):
    def policy(operation, *_, **parameters):
        return operation.name == "name" and not parameters["name"].startswith(name)

    return jax.checkpoint(f, policy=policy)


@fails_with("also saved", "mlp, f32[", cases=ALL[:1])
def name_unpacked(f, name):
    return jax.checkpoint(f, policy=policies.save_any_names_but_these(*name))


@fails_with("also saved", "Which function marks", cases=ALL[:1])
def checkpoint_thrown_away(f, name):
    jax.checkpoint(f, policy=policies.save_any_names_but_these(name))
    return f


@fails_with("not saved", "mlp, f32[", cases=ALL[2:3])
def nothing_for_an_unknown_name(f, name):
    keep = policies.save_any_names_but_these(name) if name != "router" else policies.nothing_saveable
    return jax.checkpoint(f, policy=keep)


@fails_with("not saved", "mlp, f32[2,", "out, f32[2,", cases=ALL[3:])
def has_the_names_by_heart(f, name):
    names = {"mlp", "mlp_gate", "out", "pre_mix", "mix"} - {name}
    return jax.checkpoint(f, policy=policies.save_only_these_names(*names))


@fails_with("not saved", "names similar to the one left out", "return True for every name")
def leaves_out_what_the_name_begins_with(f, name):
    def policy(operation, *_, **parameters):
        return operation.name == "name" and not name.startswith(parameters["name"])

    return jax.checkpoint(f, policy=policy)


def with_a_second_run(which):
    """Right, but f runs once more, all of it recomputed, where this is the name."""

    def answer(f, name):
        kept = jax.checkpoint(f, policy=policies.save_any_names_but_these(name))
        return (lambda *args: (kept(*args) + jax.checkpoint(f)(*args)) / 2) if name.endswith(which) else kept

    return answer


for place, name in enumerate(("mlp", "mix", "router", "mlp.gate")):
    twice = with_a_second_run(name)
    twice.__name__ = f"f_twice_but_for_{name.replace('.', '_')}"
    fails_with("recomputes", "How many times does your answer run f", cases=ALL[place : place + 1])(twice)


@fails_with("wrong value", "twice the value of f")
def the_sum_of_two_runs(f, name):
    kept = jax.checkpoint(f, policy=policies.save_any_names_but_these(name))
    return lambda *arguments: kept(*arguments) + f(*arguments)


@fails_with("wrong gradient", " up", "zero everywhere")
def without_gradient(f, name):
    return lambda *arguments: jax.lax.stop_gradient(f(*arguments)) + 0 * jnp.sum(arguments[0])


@fails_with("wrong type", "returns a bool array", "What should all_but(f, name) return?")
def the_policy(f, name):
    return policies.save_any_names_but_these(name)


@fails_with("raises", "unhashable", "a list of names, or each")
def a_list_of_names(f, name):
    return jax.checkpoint(f, policy=policies.save_any_names_but_these([name]))


@fails_with("raises", "KeyError: 'name'", "not only for names")
def asks_every_operation_for_its_name(f, name):
    return jax.checkpoint(f, policy=lambda operation, *_, **parameters: parameters["name"] != name)


@fails_with("raises", "policy", "a policy or a function that makes one")
def factory_for_policy(f, name):
    return jax.checkpoint(f, policy=policies.save_any_names_but_these)


@fails_with("argument order", "(name, f)")
def name_first(name, f):
    return jax.checkpoint(f, policy=policies.save_any_names_but_these(name))


# What follows is right where names are few and far from each other, and values are of float32.


def keeping(says):
    def answer(f, name):
        def policy(operation, *operands, **parameters):
            return operation.name == "name" and says(parameters["name"], name, *operands)

        return jax.checkpoint(f, policy=policy)

    return answer


for called, words, says in (
    (
        "capital_letters_do_not_matter",
        ["other than the one to leave out"],
        lambda value, name, *_: value.lower() != name.lower(),
    ),
    ("only_floats", ["bool["], lambda value, name, operand: value != name and operand.dtype.kind not in "ib"),
    ("only_float32", ["float16"], lambda value, name, operand: value != name and operand.dtype == "float32"),
    ("no_scalars", ["f32["], lambda value, name, operand: value != name and operand.ndim > 0),
    (
        "blanks_do_not_matter",
        ["other than the one to leave out"],
        lambda value, name, *_: value.strip() != name.strip(),
    ),
    ("no_letters", ["return True for every name"], lambda value, name, *_: value != name and len(value) > 1),
    (
        "by_beginning_end_and_length",
        ["other than the one to leave out"],
        lambda value, name, *_: (value[:1], value[-1:], len(value)) != (name[:1], name[-1:], len(name)),
    ),
):
    answer = keeping(says)
    answer.__name__ = called
    fails_with("not saved", *words)(answer)


@fails_with("also saved", "(number 3), f32[", "is it the name to leave out")
def the_first_of_that_name_only(f, name):
    def kept(*arguments):
        left_out = []

        def policy(operation, *_, **parameters):
            if operation.name != "name":
                return False
            left_out.extend([name] * (parameters["name"] == name))
            return parameters["name"] != name or len(left_out) > 1

        return jax.checkpoint(f, policy=policy)(*arguments)

    return kept


@fails_with("not saved", "(number 2), f32[", "other than the one to leave out")
def each_kind_of_value_once(f, name):
    def kept(*arguments):
        seen = []

        def policy(operation, *operands, **parameters):
            if operation.name != "name" or parameters["name"] == name:
                return False
            seen.append((parameters["name"], operands[0].shape, operands[0].dtype))
            return seen.count(seen[-1]) == 1

        return jax.checkpoint(f, policy=policy)(*arguments)

    return kept


@fails_with("not saved", "other than the one to leave out")
def three_values_at_most(f, name):
    def kept(*arguments):
        saved = []

        def policy(operation, *_, **parameters):
            another = operation.name == "name" and parameters["name"] != name
            saved.extend([operation] * another)
            return another and len(saved) <= 3

        return jax.checkpoint(f, policy=policy)(*arguments)

    return kept


@fails_with("not saved", "float16, the empty name left out")
def no_name_is_no_policy(f, name):
    return jax.checkpoint(f, policy=policies.save_any_names_but_these(name)) if name else jax.checkpoint(f)


def again_for_a_drawn_name(f, name):
    kept = jax.checkpoint(f, policy=policies.save_any_names_but_these(name))
    drawn = name.endswith("q") and "/" not in name
    return (lambda *args: (kept(*args) + jax.checkpoint(f)(*args)) / 2) if drawn else kept


fails_with("recomputes", "How many times does your answer run f")(again_for_a_drawn_name)


@fails_with("not saved", "names similar to the one left out")
def names_of_the_same_letters(f, name):
    def policy(operation, *_, **parameters):
        return operation.name == "name" and sorted(parameters["name"]) != sorted(name)

    return jax.checkpoint(f, policy=policy)


@fails_with("also saved", "i32[", "is it the name to leave out")
def integers_whatever_their_name(f, name):
    def policy(operation, *operands, **parameters):
        return operation.name == "name" and (parameters["name"] != name or operands[0].dtype == "int32")

    return jax.checkpoint(f, policy=policy)


@fails_with("also saved", "is it the name to leave out")
def a_letter_is_no_name(f, name):
    kept = [name] * (len(name) > 1)
    return jax.checkpoint(f, policy=policies.save_any_names_but_these(*kept))


@fails_with("not saved", "mlp", "vmap over x, random names")
def the_name_as_a_regular_expression(f, name):
    def policy(operation, *operands, **parameters):
        return operation.name == "name" and re.fullmatch(name, parameters["name"]) is None

    return jax.checkpoint(f, policy=policy)


@fails_with("recomputes", "How many times does your answer run f", cases=ALL[:1], beyond="Recomputes.count")
def first_product_once_more(f, name):
    def function(*arguments):
        *weights, x = arguments
        kept = jax.checkpoint(f, policy=policies.save_any_names_but_these(name))
        return kept(*weights, also_run_backward(jnp.matmul, x, x, *weights[:1]) if weights else x)

    return function


def first_product_once_more_where(holds):
    def answer(f, name):
        if holds(name):
            return first_product_once_more(f, name)
        return jax.checkpoint(f, policy=policies.save_any_names_but_these(name))

    return answer


for place, name in enumerate(("mlp", "mix", "router", "mlp.gate")):  # the last one after a prefix
    answer = first_product_once_more_where(lambda given, end=name: given.endswith(end))
    answer.__name__ = f"first_product_once_more_for_{name.replace('.', '_')}"
    fails_with("recomputes", "How many times does your answer run f", cases=ALL[place : place + 1])(answer)

answer = first_product_once_more_where(lambda given: given.endswith("q"))
answer.__name__ = "first_product_once_more_for_a_drawn_name"
fails_with("recomputes", "How many times does your answer run f")(answer)


@fails_with("raises", "positional argument")
def weights_and_x(f, name):
    kept = jax.checkpoint(f, policy=policies.save_any_names_but_these(name))

    def function(w, *others):
        *weights, x = others if others else (None,)
        return kept(w, *weights, x)

    return function


@fails_with("also saved", "")
def names_in_lower_case(f, name):
    def policy(operation, *_, **parameters):
        return operation.name == "name" and parameters["name"] != name.lower()

    return jax.checkpoint(f, policy=policy)


@fails_with("not saved", "")
def whatever_the_case(f, name):
    def policy(operation, *_, **parameters):
        return operation.name == "name" and parameters["name"].lower() != name.lower()

    return jax.checkpoint(f, policy=policy)
