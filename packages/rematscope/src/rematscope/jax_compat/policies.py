"""The policies of checkpoints: their names, and the checkpoint names that they save.

No public API returns the names of a policy. They are in its closure, or, since JAX 0.11, in its fields.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any

import jax

try:
    from jax.extend.core import jaxprs_in_params as jaxprs_in_params
except ImportError:  # JAX 0.9 and before
    from jax._src.core import jaxprs_in_params as jaxprs_in_params

# Operations whose next run gives a different result: the next numbers of a device's generator.
STATEFUL = frozenset({"rng_uniform"})

# Operations whose next run may give a different result: JAX assumes that a `pure_callback` is pure, but its Python code
# may not be.
MAY_DIFFER = STATEFUL | {"pure_callback", "io_callback"}

# A function of a primitive and its operands' avals, whose return type changed between releases.
Policy = Callable[..., Any]


def policy_name(policy: Policy | None) -> str:
    """Return the name of a policy: `dots_saveable`, `save_only_these_names`, or a user-defined name."""
    if policy is None:
        return "no policy"
    known = next((name for name, each in vars(jax.checkpoint_policies).items() if each is policy), None)
    if known is None and _made_with(policy) and not inspect.isfunction(policy):
        return re.sub("(?<!^)(?=[A-Z])", "_", type(policy).__name__).lower()
    return known or getattr(policy, "__qualname__", type(policy).__name__).partition(".<locals>")[0]


def names_in_policy(policy: Policy | None) -> set[str]:
    """Return the names in one of JAX's policies about names, including those inside `save_from_both_policies`."""
    found: set[str] = set()
    for key, value in _made_with(policy).items():
        if "names" in key:
            found |= set(value)
        elif key.startswith("policy_"):
            found |= names_in_policy(value)
    return found


def _made_with(policy: Policy | None) -> dict[str, Any]:
    """Return the values that one of JAX's policies was created with, from its closure or, in JAX 0.11, from its
    fields."""
    if getattr(policy, "__module__", None) != jax.checkpoint_policies.nothing_saveable.__module__:
        return {}
    return dict(inspect.getclosurevars(policy).nonlocals if inspect.isfunction(policy) else vars(policy))


def saving_unrepeatable(policy: Policy | None) -> Policy:
    """Return a policy that also saves results that a second run may not reproduce; see `is_repeatable`."""

    def asked(primitive: Any, *avals: Any, **params: Any) -> Any:
        if primitive.name in MAY_DIFFER or any(map(_may_differ, jaxprs_in_params(params))):
            return True
        return policy is not None and policy(primitive, *avals, **params)

    return asked


def _may_differ(jaxpr: Any) -> bool:
    """Return whether a second run of a program may give a different result. Policies are called for a whole custom
    rule."""
    return any(
        eqn.primitive.name in MAY_DIFFER or any(map(_may_differ, jaxprs_in_params(eqn.params)))
        for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns
    )
