"""Right answers to policy_from_rules, spelled in many ways."""

import re

import equinox as eqx
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
