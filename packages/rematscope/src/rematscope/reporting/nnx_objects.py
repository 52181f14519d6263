"""The modules and optimizers of Flax's nnx among the arguments of a step, whose variables the step changes in place."""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import jax

from rematscope.errors import PlanError


def is_variable(node: Any) -> bool:
    """Return whether a pytree node is a variable of nnx."""
    nnx: Any = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(node, nnx.Variable)


def is_object(node: Any) -> bool:
    """Return whether a pytree node is a module or an optimizer of nnx."""
    nnx: Any = sys.modules.get("flax.nnx")
    if nnx is None:
        return False
    kinds = tuple(kind for kind in (getattr(nnx, "Pytree", None), nnx.Module, nnx.Optimizer) if kind is not None)
    return isinstance(node, kinds)


def objects_in(tree: Any) -> list[Any]:
    """Return the modules and optimizers of nnx in a pytree, without those inside them."""
    return [node for node in jax.tree.leaves(tree, is_leaf=is_object) if is_object(node)]


def state_of(objects: Sequence[Any]) -> Any:
    """Return the variables of some objects as a pytree, in which each variable occurs once."""
    nnx: Any = sys.modules.get("flax.nnx")
    return nnx.state(tuple(objects)) if objects else ()


def set_state(objects: Sequence[Any], state: Any) -> None:
    """Write a state, as `state_of` returns it, into the variables of some objects."""
    nnx: Any = sys.modules.get("flax.nnx")
    if objects:
        nnx.update(tuple(objects), state)


@dataclasses.dataclass(frozen=True)
class _Place:
    """Stands for an object among a step's arguments in what the step returns; no pytree, so it is a leaf."""

    index: int


def with_places(returned: Any, objects: Sequence[Any], function: str) -> Any:
    """Return what a step returned, with a placeholder for each of the objects among its arguments.

    Raises:
      PlanError: if another object in it has a variable twice, or a variable of the arguments. Its copies would be
        separate variables.
    """
    index_of = {id(one): i for i, one in enumerate(objects)}
    found = jax.tree.map(
        lambda node: _Place(index_of[id(node)]) if id(node) in index_of else node, returned, is_leaf=is_object
    )
    known = set(map(id, _variables_in(objects)))
    for variable in _variables_in(objects_in(found)):
        if id(variable) in known:
            raise PlanError(
                f"{function} returns a module whose nnx variable ({type(variable).__name__}) also belongs to another "
                "module or to an argument, which microbatches= and donate_argnums= do not support. Return nothing: "
                "the caller's modules have the new state after the call."
            )
        known.add(id(variable))
    return found


def without_places(returned: Any, objects: Sequence[Any]) -> Any:
    """Return what a step returned, with the caller's objects in place of the placeholders of `with_places`."""
    return jax.tree.map(lambda leaf: objects[leaf.index] if isinstance(leaf, _Place) else leaf, returned)


def _variables_in(tree: Any) -> list[Any]:
    return [node for node in jax.tree.leaves(tree, is_leaf=is_variable) if is_variable(node)]
