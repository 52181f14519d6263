"""Right answers to either, spelled in many ways."""

import dataclasses
import functools
from collections.abc import Callable

import equinox as eqx
from jax.ad_checkpoint import Offloadable, Recompute, Saveable
from sample_answers import Answers

RIGHT = Answers()
passes = RIGHT.passes


@passes
def no_is_asked_for(p1, p2):
    def policy(*operation, **parameters):
        first = p1(*operation, **parameters)
        return p2(*operation, **parameters) if first in (False, Recompute) else first

    return policy


@passes
def yes_is_asked_for(p1, p2):
    def policy(prim, *avals, **params):
        for ask in (p1, p2):
            said = ask(prim, *avals, **params)
            if said is True or said is Saveable or isinstance(said, Offloadable):
                return said
        return False

    return policy


@passes
def made_enums_first(p1, p2):
    def enum(said):
        return {True: Saveable, False: Recompute}[said] if isinstance(said, bool) else said

    def policy(prim, *avals, **params):
        first, second = (enum(p(prim, *avals, **params)) for p in (p1, p2))
        return second if first is Recompute else first

    return policy


@passes
def made_booleans_where_there_is_nothing_to_lose(p1, p2):
    def plain(said):
        return {Saveable: True, Recompute: False}.get(said, said)

    return lambda *a, **k: plain(p1(*a, **k)) or plain(p2(*a, **k))


@passes
def from_the_last_to_the_first(p1, p2):
    def join(second, first):
        def policy(*a, **k):
            said = first(*a, **k)
            return second(*a, **k) if isinstance(said, type(Recompute)) or said is False else said

        return policy

    return functools.reduce(join, [p2, p1])


@passes
class Either:
    """A policy may be an object that can be called."""

    def __init__(self, p1, p2):
        self.policies = p1, p2

    def __call__(self, *a, **k):
        said = [policy(*a, **k) for policy in self.policies]
        return next((answer for answer in said if answer not in (False, Recompute)), Recompute)


@passes
@dataclasses.dataclass(frozen=True)
class Matched:
    first: Callable
    second: Callable

    def __call__(self, prim, *avals, **params):
        match self.first(prim, *avals, **params):
            case True | Offloadable() as yes:
                return yes
            case said:
                return said if said is Saveable else self.second(prim, *avals, **params)


@passes
def a_partial(p1, p2):
    def ask(policies, prim, *avals, **params):
        said = (policy(prim, *avals, **params) for policy in policies)
        return next((one for one in said if one is not False and one is not Recompute), Recompute)

    return functools.partial(ask, (p1, p2))


@passes
def remembered_by_all_that_is_told(p1, p2):
    @functools.cache
    def policy(prim, *avals, **params):
        said = p1(prim, *avals, **params)
        return p2(prim, *avals, **params) if said == Recompute or said is False else said

    return policy


class Joined(eqx.Module):
    first: Callable = eqx.field(static=True)
    second: Callable = eqx.field(static=True)

    def __call__(self, *operation, **parameters):
        said = self.first(*operation, **parameters)
        return self.second(*operation, **parameters) if said is False or said is Recompute else said


@passes
def an_equinox_module(p1, p2):
    return Joined(p1, p2)


@passes
def by_the_type_of_what_is_said(p1, p2):
    @functools.singledispatch
    def is_yes(said):
        return True

    is_yes.register(bool, lambda said: said)
    is_yes.register(type(Recompute), lambda said: False)
    return lambda *a, **k: said if is_yes(said := p1(*a, **k)) else p2(*a, **k)
