"""Right answers to policy_from_rules, spelled in many ways."""

import functools
import re

import equinox as eqx
import jax
from jax.ad_checkpoint import Offloadable, Recompute, Saveable
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes
HOST = Offloadable("device", "pinned_host")


@passes
def first_that_matches(rules):
    returned = {"save": True, "offload": HOST, "recompute": False}

    def policy(prim, *_, **params):
        if prim.name != "name":
            return False
        matching = (returned[action] for pattern, action in rules if re.fullmatch(pattern, params["name"]))
        return next(matching, False)

    return policy


@passes
def objects_for_results(rules):
    returned = {"save": Saveable, "offload": HOST, "recompute": Recompute}

    def policy(prim, *_, name=None, **params):
        if prim.name == "name":
            for pattern, action in rules:
                if re.match(rf"(?:{pattern})\Z", name):
                    return returned[action]
        return Recompute

    return policy


@passes
def last_rule_first(rules):
    def policy(prim, *_, **params):
        result = False
        if str(prim) == "name":
            for pattern, action in reversed(rules):
                if re.fullmatch(pattern, params["name"]):
                    result = action == "save" or (action == "offload" and HOST)
        return result

    return policy


@passes
def one_rule_around_the_others(rules):
    def with_rule(rest, rule):
        pattern, action = rule

        def policy(prim, *operands, **params):
            if prim.name == "name" and re.fullmatch(pattern, params["name"]):
                return {"save": True, "offload": HOST, "recompute": False}[action]
            return rest(prim, *operands, **params)

        return policy

    return functools.reduce(with_rule, reversed(rules), jax.checkpoint_policies.nothing_saveable)


class Policy(eqx.Module):
    rules: tuple = eqx.field(static=True)

    def __call__(self, operation, *_, **parameters):
        if operation.name != "name":
            return False
        actions = [action for pattern, action in self.rules if re.fullmatch(pattern, parameters["name"])]
        return {"save": True, "offload": HOST, "recompute": False}[[*actions, "recompute"][0]]


@passes
def an_equinox_module(rules):
    return Policy(tuple(rules))


@passes
def remembers_what_each_name_gets(rules):
    @functools.cache
    def action(name):
        return next((action for pattern, action in rules if re.fullmatch(pattern, name)), "recompute")

    def policy(prim, *_, **params):
        if prim.name != "name" or action(params["name"]) == "recompute":
            return False
        return HOST if action(params["name"]) == "offload" else True

    return policy
