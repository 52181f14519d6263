"""Right answers to gpt_block_policy, spelled in many ways."""

import functools
import re

import equinox as eqx
import jax
from jax.ad_checkpoint import Recompute, Saveable
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes
policies = jax.checkpoint_policies
named = policies.save_only_these_names
QKV = ["query_proj", "key_proj", "value_proj", "qkv_proj"]
MLP = ["mlpwi", "mlpwi_0", "mlpwi_1", "mlpwo"]


@passes
def a_dict_of_names(name):
    menu = {"full": [], "save_out_proj": ["out_proj"], "save_qkv_proj": QKV, "minimal": [*QKV, "out_proj", *MLP]}
    menu["minimal_with_context"] = [*menu["minimal"], "context"]
    return named(*menu[name])


@passes
def one_from_another(name):
    if name == "minimal_with_context":
        return policies.save_from_both_policies(one_from_another("minimal"), named("context"))
    if name == "minimal":
        attention = policies.save_from_both_policies(
            one_from_another("save_qkv_proj"), one_from_another("save_out_proj")
        )
        return policies.save_from_both_policies(attention, named(*MLP))
    return {"full": policies.nothing_saveable, "save_out_proj": named("out_proj"), "save_qkv_proj": named(*QKV)}[name]


@passes
def a_policy_of_its_own(name):
    def saves(value):
        match name:
            case "full":
                return False
            case "save_out_proj":
                return value == "out_proj"
            case "save_qkv_proj":
                return value in QKV
        return value in [*QKV, "out_proj", *MLP] or (value == "context" and name.endswith("context"))

    def policy(operation, *_, **parameters):
        return Saveable if operation.name == "name" and saves(parameters["name"]) else Recompute

    return policy


@passes
class Menu:
    """A policy may be an object that can be called."""

    def __init__(self, name):
        names = ["context"] if name == "minimal_with_context" else []
        names += [*QKV, "out_proj", *MLP] if name.startswith("minimal") else []
        names += QKV if name == "save_qkv_proj" else []
        self.names = frozenset([*names, "out_proj"] if name == "save_out_proj" else names)

    def __call__(self, prim, *avals, **params):
        return Saveable if prim.name == "name" and params["name"] in self.names else Recompute


@passes
def whole_names_by_pattern(name):
    minimal = r"(query|key|value|qkv|out)_proj|mlpw(i(_[01])?|o)"
    patterns = {
        "full": "(?!)",
        "save_out_proj": "out_proj",
        "save_qkv_proj": "(query|key|value|qkv)_proj",
        "minimal": minimal,
        "minimal_with_context": f"{minimal}|context",
    }

    def asked(pattern, prim, *_, **params):
        return prim.name == "name" and pattern.fullmatch(params["name"]) is not None

    return functools.partial(asked, re.compile(patterns[name]))


@passes
def joined_one_by_one(name):
    menu = {"full": [], "save_out_proj": ["out_proj"], "save_qkv_proj": QKV, "minimal": [*QKV, "out_proj", *MLP]}
    menu["minimal_with_context"] = ["context", *menu["minimal"]]
    return functools.reduce(policies.save_from_both_policies, map(named, menu[name]), policies.nothing_saveable)


class Policy(eqx.Module):
    names: frozenset[str] = eqx.field(static=True)

    def __call__(self, operation, *_, **parameters):
        return operation.name == "name" and parameters["name"] in self.names


@passes
def an_equinox_module(name):
    minimal = {*QKV, "out_proj", *MLP}
    of = {"full": set(), "save_out_proj": {"out_proj"}, "save_qkv_proj": {*QKV}, "minimal": minimal}
    return Policy(frozenset(of.get(name, minimal | {"context"})))
