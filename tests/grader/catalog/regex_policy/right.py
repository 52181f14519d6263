"""Right answers to regex_policy, spelled in many ways."""

import functools
import re

import equinox as eqx
from jax.ad_checkpoint import Recompute, Saveable
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes


@passes
def fullmatch(pattern):
    def policy(prim, *_, **params):
        return prim.name == "name" and bool(re.fullmatch(pattern, params["name"]))

    return policy


@passes
def match_with_an_end(pattern):
    described = re.compile(rf"(?:{pattern})\Z")
    return lambda prim, *_, **params: prim.name == "name" and described.match(params["name"]) is not None


@passes
def objects_for_answers(pattern):
    def policy(prim, *_, **params):
        if prim.name != "name":
            return Recompute
        return Saveable if re.fullmatch(pattern, params["name"]) else Recompute

    return policy


@passes
def whole_of_what_is_found(pattern):
    def policy(prim, *operands, name=None, **params):
        found = re.match(f"(?:{pattern})$", name) if prim.name == "name" else None
        return found is not None and found.group() == name

    return policy


@passes
def with_the_pattern_bound(pattern):
    def asked(described, prim, *_, **params):
        match prim.name, params:
            case "name", {"name": str(name)}:
                return described.fullmatch(name) is not None
        return False

    return functools.partial(asked, re.compile(pattern))


@passes
class OfAClass:
    def __init__(self, pattern):
        self.pattern = pattern

    def __call__(self, prim, *_, **params):
        return str(prim) == "name" and re.fullmatch(self.pattern, params["name"]) is not None


class Policy(eqx.Module):
    pattern: str = eqx.field(static=True)

    def __call__(self, operation, *_, name=None, **parameters):
        return operation.name == "name" and re.fullmatch(self.pattern, name) is not None


@passes
def an_equinox_module(pattern):
    return Policy(pattern)


@passes
def anchored(pattern):
    described = re.compile(rf"\A(?:{pattern})\Z")
    return lambda operation, *_, **params: operation.name == "name" and bool(described.search(params["name"]))
