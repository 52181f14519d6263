"""Wrong answers to policy_from_rules, each with the finding that must name its mistake."""

import dataclasses
import re

import jax
from jax.ad_checkpoint import Offloadable, Saveable
from sample_answers import Answers

WRONG = Answers()
fails_with = WRONG.fails_with
policies = jax.checkpoint_policies
RETURNED = {"save": True, "offload": Offloadable("device", "pinned_host"), "recompute": False}


def by_rules(rules, matches=re.fullmatch, otherwise=False, without_name=False, returned=RETURNED):
    """Return a policy by the first rule whose pattern matches the name according to `matches`."""

    def policy(operation, *_, **parameters):
        if operation.name != "name":
            return without_name
        return next((returned[action] for pattern, action in rules if matches(pattern, parameters["name"])), otherwise)

    return policy


@fails_with("also saved", "the first rule whose pattern matches the whole name", hint="take_value_check_says_should")
def search(rules):
    return by_rules(rules, re.search)


@fails_with("also saved", "the first rule whose pattern matches the whole name", hint="take_value_check_says_should")
def begins_and_ends(rules):
    return by_rules(rules, lambda pattern, name: re.search(f"^{pattern}$", name))


@fails_with("also saved", "intermediate value", "Does that value have a name", hint="policy_saves_value_without_name")
def saves_matmuls_too(rules):
    return policies.save_from_both_policies(
        policies.dots_saveable, by_rules(rules, returned={**RETURNED, "offload": True})
    )


@fails_with("also saved", "intermediate value", "Does that value have a name", hint="policy_saves_value_without_name")
def the_operations_name_alone(rules):
    def policy(operation, *_, **parameters):
        return next((RETURNED[action] for pattern, action in rules if re.fullmatch(pattern, operation.name)), False)

    return policy


@fails_with("wrong memory", "in device memory", hint="forward_pass_saves_right_value")
def all_on_the_host(rules):
    return by_rules(rules, returned={**RETURNED, "save": RETURNED["offload"]})


@fails_with(
    "also saved",
    "only in case",
    "upper and lower case",
    "two names that differ only in case",
    hint="take_value_check_says_should",
)
def in_any_letters(rules):
    return by_rules(rules, lambda pattern, name: re.fullmatch(pattern, name, re.IGNORECASE))


@fails_with(
    "also saved",
    "the first rule whose pattern matches the whole name",
    "capital letters and spaces",
    hint="take_value_check_says_should",
)
def spaces_left_out(rules):
    return by_rules(rules, lambda pattern, name: re.fullmatch(pattern, name, re.VERBOSE))


@fails_with("not saved", "does not save ''", hint="print_policy_returns_operation_names", cases=("all names but one",))
def no_empty_name(rules):
    return by_rules(rules, lambda pattern, name: name and re.fullmatch(pattern, name))


@fails_with("raises", "KeyError", "have a parameter", hint="call_policy_yourself_regex_policy")
def asks_everything_for_its_name(rules):
    return lambda operation, *_, **parameters: next(
        (RETURNED[action] for pattern, action in rules if re.fullmatch(pattern, parameters["name"])), False
    )


@fails_with("raises", "if no rule matches", hint="jax_calls_policy_every_operation")
def returns_none_if_no_rule_matches(rules):
    return by_rules(rules, otherwise=None)


@fails_with("raises", "JAX calls a policy with", hint="call_policy_yourself_regex_policy", remat3=False)
def takes_a_name(rules):
    return lambda name: by_rules(rules)


@fails_with(
    "raises",
    "expected string",
    "Which argument of a policy contains the name",
    hint="call_policy_yourself_regex_policy",
)
def matches_the_operation(rules):
    return lambda operation, *_, **parameters: any(re.fullmatch(pattern, operation) for pattern, _ in rules)


@fails_with("raises", "unterminated subpattern", "must not be split", hint="pass_pattern_re_unchanged_groups")
def each_alternative_a_rule(rules):
    return by_rules([(each, action) for pattern, action in rules for each in pattern.split("|")])


@dataclasses.dataclass
class Rules:
    rules: list

    def __call__(self, operation, *_, **parameters):
        return by_rules(self.rules)(operation, **parameters)


@fails_with("raises", "unhashable type: 'Rules'", "frozen=True", hint="call_policy_yourself_regex_policy", remat3=False)
def object_without_a_hash(rules):
    return Rules(rules)


@fails_with(
    "wrong type",
    "returns None",
    "What should policy_from_rules(rules) return?",
    hint="call_policy_yourself_regex_policy",
)
def no_return(rules):
    def policy(operation, *_, **parameters):
        return Saveable


@fails_with(
    "wrong type",
    "returns a list, not a function",
    "What should policy_from_rules(rules) return?",
    hint="call_policy_yourself_regex_policy",
)
def policies_of_the_rules(rules):
    return [by_rules([rule]) for rule in rules]
