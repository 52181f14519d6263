"""`load_schedule(path, f)`: `f` with a schedule that `auto` chose and wrote to a file."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from rematscope.errors import PlanError, TargetError
from rematscope.scheduling.argnums import check_argnums
from rematscope.scheduling.blocks import Block
from rematscope.scheduling.captured import captured
from rematscope.scheduling.checkpoint_placement import POLICIES, CheckpointPlacement, checkpointed
from rematscope.scheduling.divided import Segments, divided
from rematscope.scheduling.linearize import linearize
from rematscope.scheduling.per_call import GradientCall, PlannedPerCall
from rematscope.scheduling.planned import Planned, scheduled_function
from rematscope.scheduling.result import reduce_wrapper
from rematscope.scheduling.schedule import schedule
from rematscope.scheduling.stored_choice import StoredChoice, digest
from rematscope.tracing.checkpoints import without_checkpoints
from rematscope.tracing.signature import Signature
from rematscope.xla.compiling import check_target

P = ParamSpec("P")
R = TypeVar("R")
_OF_AN_EDITED_FILE = (IndexError, KeyError)  # raised for indices of values or operations that do not fit the program


def load_schedule(path: str | os.PathLike[str], f: Callable[P, R]) -> "LoadedFunction[P, R]":
    """Transform `f` with a schedule from a file, without another search.

    `auto` chose the schedule, and `Auto.save` wrote the file. `load_schedule` does not search or compile. The first
    call with new shapes, dtypes, pytrees or static values traces `f` and compares its program with the program in the
    file. Like `jax.jit`, this trace captures the variables that `f` closes over.

    Args:
      path: the path of a file that `auto(f, …).plan(*args).save("schedule.json")` wrote.
      f: the function that the schedule was chosen for, with the same operations on the same shapes.

    Returns:
      A callable with the signature of `f`, which supports the same transformations as the result of `auto`. It has
      gradients for the `argnums` that were passed to `auto`.

    Raises:
      OSError: if the file cannot be read.
      PlanError: if the file does not contain a schedule, or names an unknown target. When you call the result, if the
        schedule is for a different function or for different argument shapes, or if `f` changes the state of an object.
        When you differentiate the result, if you do so with respect to an argument that is not in `argnums`.

    Example:
      >>> import jax, jax.numpy as jnp, pathlib, tempfile
      >>> from rematscope import auto, load_schedule
      >>> def loss(w, x):
      ...     return jnp.sin(jnp.sin(x @ w) @ w).sum()
      >>> args = jnp.ones((8, 8)), jnp.ones((64, 8))
      >>> file = pathlib.Path(tempfile.mkdtemp(), "schedule.json")
      >>> auto(loss, saved="3 KiB").plan(*args).save(file)
      >>> gradient = jax.grad(load_schedule(file, loss))(*args)
    """
    __tracebackhide__ = True
    if not isinstance(path, str | os.PathLike):
        raise PlanError(
            f"{path!r} is not a path. Give the path of a file that auto(f, …).plan(*args).save('….json') wrote."
        )
    saved = _read_file(path)
    try:
        check_target(saved.target)
    except TargetError as error:
        raise PlanError(f"{os.fspath(path)} is for another device: {error}") from None
    return LoadedFunction(os.fspath(path), f, saved)


class _Saved(NamedTuple):
    """The content of a schedule file."""

    structure: str
    choice: StoredChoice
    target: str
    argnums: tuple[int, ...] | None


class LoadedFunction(PlannedPerCall[P, R, Planned]):
    """The result of `load_schedule`: a function with a schedule from a file."""

    def __init__(self, path: str, f: Callable[P, R], saved: _Saved):
        super().__init__(f, saved.argnums)
        self._path, self._saved = path, saved

    def __repr__(self) -> str:
        return f"<load_schedule({self._path!r}, {self.__name__})>"

    def __reduce__(self) -> Any:
        return reduce_wrapper(self, self._path, self.__wrapped__, self._saved)

    def _make_plan(self, call: GradientCall) -> Planned:
        saved, choice = self._saved, self._saved.choice
        signature, once = Signature(call.f, call.args, call.kwargs), captured(call.f, call.args, call.kwargs)
        own = once if choice.of_own else without_checkpoints(once)
        try:
            given = own if choice.placement is None else checkpointed(once, choice.placement)
            linearized = divided(linearize(call.trace(given)), choice.segments)
        except _OF_AN_EDITED_FILE:
            raise _holds_none(self._path) from None
        if digest(linearized) != saved.structure:
            raise PlanError(
                f"{self._path} is for another function than {self.__name__} with these arguments: the operations "
                "or shapes differ, or JAX traces them differently now. Let auto plan again."
            )
        if choice.placement is not None:
            return Planned(once, signature, given, call.grad_mask)
        try:
            made = schedule(linearized, *choice.values(linearized), saved.target)
        except _OF_AN_EDITED_FILE:
            raise _holds_none(self._path) from None
        return Planned(once, signature, scheduled_function(once, made, call.grad_mask), call.grad_mask)


def _read_file(path: str | os.PathLike[str]) -> _Saved:
    text = Path(path).read_bytes()
    try:
        stored = json.loads(text)
        argnums = stored.get("argnums")
        return _Saved(
            str(stored["structure"]),
            StoredChoice(
                bool(stored.get("checkpoints")),
                _read_placement(stored.get("plain")),
                _read_indices(stored["kept"]),
                _read_indices(stored.get("moved", [])),
                tuple((_read_indices([at])[0], _read_indices(live)) for at, live in stored.get("stops", ())),
                tuple(_read_segments(each) for each in stored.get("segments", ())),
            ),
            str(stored.get("target", "cpu")),
            None if argnums is None else check_argnums(argnums),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, PlanError):
        raise _holds_none(os.fspath(path)) from None


def _holds_none(path: str) -> PlanError:
    return PlanError(f"{path} holds no schedule. Write one with auto(f, …).plan(*args).save('schedule.json').")


def _read_indices(stored: Any) -> tuple[int, ...]:
    """Return the indices in a list from a file, which may hold anything."""
    if not isinstance(stored, list) or any(type(place) is not int or place < 0 for place in stored):
        raise ValueError("not a list of indices")
    return tuple(stored)


def _read_segments(stored: Any) -> Segments:
    """Return a loop in segments from a file."""
    place, iterations, last = _read_indices(stored)
    return place, iterations, last


def _read_block(stored: Any) -> Block:
    block = _read_indices(stored)
    if len(block) < 2 or block[-2] >= block[-1]:
        raise ValueError("not a block")
    return block


def _read_placement(stored: Any) -> CheckpointPlacement | None:
    """Return plain checkpoints from a file."""
    if stored is None:
        return None
    plain = CheckpointPlacement(
        tuple(map(_read_block, stored["blocks"])),
        stored["depth"],
        stored["policy"],
        stored["own"],
        tuple(map(_read_indices, stored["saved"])),
    )
    has_depth = plain.depth is not None and bool(_read_indices([plain.depth]))
    if plain.policy not in (None, *POLICIES) or (has_depth and plain.blocks):
        raise ValueError("not checkpoints")
    return plain
