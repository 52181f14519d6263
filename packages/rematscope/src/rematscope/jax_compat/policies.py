"""The policies of checkpoints: their names, and the checkpoint names that they save.

No public function tells the names that a policy was made with: they are in its closure, or in fields of its own from
JAX 0.11 on.
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

# Another run of these gives another result: the next numbers of a device's own generator, or the next item of a queue.
STATEFUL = frozenset({"rng_uniform", "infeed", "outfeed"})


# And of these it may: JAX takes a `pure_callback` at its word, but it returns whatever Python code does.
MAY_DIFFER = STATEFUL | {"pure_callback", "io_callback"}

Policy = Callable[..., Any]  # of a primitive and its operands' avals; what it returns changed between releases


def policy_name(policy: Policy | None) -> str:
    """What a policy is called: `dots_saveable`, `save_only_these_names`, or a name of the user's own."""
    if policy is None:
        return "no policy"
    known = next((name for name, each in vars(jax.checkpoint_policies).items() if each is policy), None)
    if known is None and _made_with(policy) and not inspect.isfunction(policy):
        return re.sub("(?<!^)(?=[A-Z])", "_", type(policy).__name__).lower()
    return known or getattr(policy, "__qualname__", type(policy).__name__).partition(".<locals>")[0]


def names_in_policy(policy: Policy | None) -> set[str]:
    """The names that one of JAX's policies about names was made with, or those in `save_from_both_policies`."""
    found: set[str] = set()
    for key, value in _made_with(policy).items():
        if "names" in key:
            found |= set(value)
        elif key.startswith("policy_"):
            found |= names_in_policy(value)
    return found


def _made_with(policy: Policy | None) -> dict[str, Any]:
    """What one of JAX's own policies remembers: in a closure, or in fields in JAX 0.11. Nothing else tells."""
    if getattr(policy, "__module__", None) != jax.checkpoint_policies.nothing_saveable.__module__:
        return {}
    return dict(inspect.getclosurevars(policy).nonlocals if inspect.isfunction(policy) else vars(policy))


def saving_unrepeatable(policy: Policy | None) -> Policy:
    """A policy that also saves results that a second run may not give; see `is_repeatable`."""

    def asked(primitive: Any, *avals: Any, **params: Any) -> Any:
        if primitive.name in MAY_DIFFER or any(map(_may_differ, jaxprs_in_params(params))):
            return True
        return policy is not None and policy(primitive, *avals, **params)

    return asked


def _may_differ(jaxpr: Any) -> bool:
    """Whether a second run of a program may give another result: a policy is asked about a custom rule as a whole."""
    return any(
        eqn.primitive.name in MAY_DIFFER or any(map(_may_differ, jaxprs_in_params(eqn.params)))
        for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns
    )
