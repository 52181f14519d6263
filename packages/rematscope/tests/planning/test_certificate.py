"""A certificate proves that a plan is best, and does not hold once it is changed or shown to another program."""

import dataclasses
import functools
import json
from fractions import Fraction

import jax
import jax.numpy as jnp
import pytest
from blocks import BLOCKS
from sampling import few

from rematscope import Certificate, PlanError, plan
from rematscope.choices.enumeration import every_choice

F32 = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)


ARGS = BLOCKS["gpt"].args
gpt = BLOCKS["gpt"].function


@functools.cache
def planned():
    return plan(gpt, *ARGS, saved=0.4)


@pytest.mark.slow
def test_a_certificate_is_plain_data():
    made = planned().certificate
    again = Certificate(**json.loads(json.dumps(dataclasses.asdict(made))))
    assert again.verify(gpt, *ARGS) == made.verify(gpt, *ARGS) == made.objective == made.bound


CHANGES = {
    "another function": lambda c: {"function": "other"},
    "another program": lambda c: {"program": c.program[::-1]},
    "a smaller budget": lambda c: {"budget": c.saved_bytes - 1},
    "a budget for a better choice": lambda c: {"budget": 2 * c.budget},
    "a name less": lambda c: {"names": c.names[1:]},
    "a name that is none": lambda c: {"names": (*c.names, "none")},
    "fewer bytes": lambda c: {"saved_bytes": c.saved_bytes - 1},
    "a better objective": lambda c: {"objective": c.objective - 1},
    "an objective above the bound": lambda c: {"objective": c.objective + 1},
    "a higher bound": lambda c: {"bound": c.bound + 1},
    "a lower bound": lambda c: {"bound": c.bound - c.bound // 2},
    "multipliers too many": lambda c: {"multipliers": (*c.multipliers, 1)},
}


@pytest.mark.parametrize("change", few(CHANGES, 5))
def test_a_changed_certificate_does_not_hold(change):
    made = planned().certificate
    with pytest.raises(PlanError, match=r"a different program|was changed"):
        dataclasses.replace(made, **CHANGES[change](made)).verify(gpt, *ARGS)


@pytest.mark.slow
def test_a_certificate_is_about_one_program():
    p, x = ARGS
    with pytest.raises(PlanError, match="a different program than gpt"):
        planned().certificate.verify(gpt, p, F32((3, *x.shape[1:])))
    with pytest.raises(PlanError, match="a different program than gpt"):
        planned().certificate.verify(gpt, *ARGS, cost=lambda e: 1)


@pytest.mark.slow
def test_a_certificate_of_many_names_is_proven_by_its_multipliers(many):
    _, cost = every_choice(planned().graph)
    nbytes, _ = every_choice(planned().graph)
    found = plan(gpt, *ARGS, saved=0.4)
    made = found.certificate
    best = cost[nbytes <= made.budget].min()
    assert found.gap == 0 and "HiGHS" in made.solver and made.objective == best
    proven = made.verify(gpt, *ARGS)
    assert isinstance(proven, Fraction) and 0.7 * best <= proven <= best
    wrong = {
        "negative": {"multipliers": (*made.multipliers[:-1], -1)},
        "too few": {"multipliers": made.multipliers[1:]},
        "bound above the choice": {"bound": made.bound + 1},
        "bound below what is proven": {"bound": int(proven) - 1},
    }
    for change in wrong.values():
        with pytest.raises(PlanError, match="the certificate was changed"):
            dataclasses.replace(made, **change).verify(gpt, *ARGS)
    # Other multipliers prove less, and nothing untrue.
    less = dataclasses.replace(made, multipliers=(0,) * len(made.multipliers)).verify(gpt, *ARGS)
    assert 0 <= less <= proven
