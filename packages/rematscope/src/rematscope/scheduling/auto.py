"""`auto(f, *args, peak=…)`: a function that computes and differentiates as `f` does, within a limit of memory."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import jax

from rematscope.choices.build import CostFunction, work
from rematscope.errors import PlanError
from rematscope.ir.garbage import collected_later
from rematscope.planning.budget import budget_bytes
from rematscope.render.progress import progress
from rematscope.render.units import bytes_text
from rematscope.scheduling.blocks import Block
from rematscope.scheduling.captured import captured
from rematscope.scheduling.divided import divided
from rematscope.scheduling.host import HostOffload
from rematscope.scheduling.linearize import linearize
from rematscope.scheduling.loop_pairs import Segments
from rematscope.scheduling.plain import POLICIES, Plain, checkpointed
from rematscope.scheduling.planned import scheduled_as, with_checkpoints
from rematscope.scheduling.result import Auto
from rematscope.scheduling.schedule import schedule
from rematscope.scheduling.search import COMPILES, Search
from rematscope.scheduling.structure import digest, stops_at, values_at
from rematscope.scheduling.suggested_names import shapes_of
from rematscope.seconds.devices import DEVICES, Device, cost_meant, device_called
from rematscope.tracing.arguments import with_own_options
from rematscope.tracing.checkpoints import without_checkpoints
from rematscope.tracing.signature import Signature
from rematscope.tracing.trace import trace
from rematscope.xla.compiling import check_target


@with_own_options
def auto(
    f: Callable[..., Any],
    *args: Any,
    peak: int | str | None = None,
    saved: int | str | None = None,
    target: str = "cpu",
    compiles: int = COMPILES,
    cost: CostFunction | str = work,
    device: Device | str | None = None,
    host: HostOffload | None = None,
    **kwargs: Any,
) -> Auto:
    """Chooses what `f`'s backward pass keeps, among all values, and when it computes the rest again.

    Nothing has to be named. Checkpoints that `f` has are proposals: `f` as it is, and what they keep with another
    schedule, are among the choices, beside what JAX's policies for products keep and a checkpoint around each block:
    what a function does each time it is called, with those products in it saved that there is room for.
    Loops in loops, branches and `shard_map`s are kept or computed again as a whole by a schedule; where there are some,
    plain checkpoints around layers and turns, also within these, are choices with each of those policies.

    Args:
      f: a function that is differentiable in reverse mode. It is compiled, and not run. Of a training step, its loss.
      *args, **kwargs: its arguments, as for `trace`. Gradients are those of all floating-point ones, and so are the
        peak's bytes. What needs none, such as a batch of images, says so in `f`, by `jax.lax.stop_gradient`: nothing is
        computed for it then.
      peak: bytes that both passes may take once they are compiled: arguments, outputs, gradients and temporaries, as
        JAX's `memory_analysis` of the compiled gradient counts them. (`measure(f, …).peak_bytes` has the cotangent of a
        scalar besides, and numbers that the compiler wrote.) A whole number, or a text like `"8 GiB"`.
      saved: in its place, bytes that may be kept from the forward for the backward pass, as for `plan`.
      target: what to compile for, as for `measure`.
      compiles: how often to compile, at most.
      cost: what is to be least of all that is computed again, as for `plan`: FLOPs, and one for each element that a
        transcendental function is applied to, by default; `"seconds"` of a roofline of `device`; or a function of an
        `Equation`, which is asked about those of the forward pass.
      device: with `cost="seconds"`, the name of a device such as `"tpu v5e"`, a `Device`, or `calibrate()`.
      host: the memory of the host as a third choice, `HostOffload(bandwidth=16e9)`: what loops stack may wait there,
        from 1 MiB a stack on. What is least is then seconds, those that moves are waited for included; of the target,
        where `cost` and `device` are left out and it has known rates. A function without loops has nothing to move, and
        the memory of a CPU is the host's.

    Returns:
      The best of what was compiled. Its `.function` computes and differentiates what `f` does, in reverse mode as was
      chosen. Value and derivatives all come from one trace of `f`, made by this call: variables that `f` closes over
      keep the values that they had then. A call for which `jax.jit` would trace `f` again is refused: another pytree
      structure, static value, shape, dtype, weak type or explicit sharding of the arguments, or another setting of
      JAX. It can be transformed by `jit`, `vmap` and further derivatives.

    Raises:
      PlanError: if the limit cannot be read or kept, with the smallest peak that was reached; if `f` changes the state
        of an object, such as a module of Flax's nnx, or closes over a traced value; if nothing may be compiled; if
        nothing of `f` can move to a `host`, or does so already; if `f` is a training step, which takes gradients
        itself; or if only one of `cost="seconds"` and `device` is given.
      TraceError, TargetError: as `measure` does.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from rematscope import auto
      >>> def net(ws, x):
      ...     for w in ws:
      ...         x = jnp.sin(x @ w)
      ...     return x.sum()
      >>> args = [jnp.ones((8, 8))] * 8, jnp.ones((256, 8))
      >>> found = auto(net, *args, peak="90 KiB")
      >>> found.measurement.peak_bytes <= found.limit
      True
      >>> gradients = jax.grad(found.function)(*args)
    """
    __tracebackhide__ = True
    asked, what = (peak, "peak") if saved is None else (saved, "saved")
    if asked is None or (peak is not None and saved is not None):
        raise PlanError(
            "give auto either peak=, the limit for the compiled peak, or saved=, the limit for saved bytes."
        )
    if not isinstance(compiles, int) or isinstance(compiles, bool) or compiles < 1:
        raise PlanError(f"compiles={compiles!r} will not do: auto compiles what it returns. Give 1 or more.")
    if "differentiate" in kwargs:
        raise PlanError(
            "auto takes no differentiate=: it is about the gradient of all that it is given. Of a training step, give "
            "it the loss, and let the step take the gradient of its .function."
        )
    limit = budget_bytes(asked, what)
    check_target(target)
    meant = cost_meant(cost, device) if host is None else _weighed(host, cost, device, target, peak is not None)
    with progress() as tell, collected_later():
        tell("tracing", 0)
        search = Search(f, args, kwargs, target, compiles, meant, host)
        search.tell = tell
        try:
            trial, bound = search.within_peak(limit) if peak is not None else search.within_saved(limit)
        except KeyboardInterrupt as stopped:
            stopped.add_note(_so_far(search, limit))
            raise
    subject = f, *shapes_of((args, kwargs))  # the arrays may go
    return Auto(search.linearized, trial, search.trials, limit, peak is not None, target, bound, meant, subject, host)


def _so_far(search: Search, limit: int) -> str:
    """What was compiled until somebody stopped a search, and how to have it."""
    fits = [trial for trial in search.trials if trial.fits(limit)]
    which = f"{len(search.trials)} of at most {search.compiles} choices for {search.name} were compiled"
    if not search.trials:
        return f"Nothing had been compiled for {search.name}."
    if not fits:
        least = min(trial.peak_bytes for trial in search.trials)
        return f"{which}, and none takes {bytes_text(limit)} or less: the smallest takes {bytes_text(least)}."
    least = min(trial.peak_bytes for trial in fits)
    return f"{which}, and one takes {bytes_text(least)}: compiles={len(search.trials)} stops there."


def _weighed(host: Any, cost: Any, device: Any, target: str, limits_peak: bool) -> Device:
    """The device on whose seconds moves to a host are weighed against computing again."""
    if not isinstance(host, HostOffload):
        raise PlanError(f"host={host!r} is not a HostOffload. Give one, HostOffload(bandwidth=16e9), or leave it out.")
    if not hasattr(jax, "memory"):
        raise PlanError(f"JAX {jax.__version__} has no jax.memory, by which values move to a host. Take a newer one.")
    if target == "cpu" and limits_peak:
        raise PlanError(
            "the memory of a CPU is the host's, and what moves there takes as much of its peak. Compile for what has "
            "memory of its own, such as target='tpu v5e', or leave host= out."
        )
    if cost == work and device is None and target.partition(":")[0] in DEVICES:
        return device_called(target)
    if cost != "seconds":
        raise PlanError(
            "with host= seconds are what is least, for both moving and computing again take them: add cost='seconds' "
            "and of which device, device='tpu v5e'."
        )
    return cast(Device, cost_meant(cost, device))


@with_own_options
def load_schedule(path: str | os.PathLike[str], f: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """The function that `auto` chose once, from a file that its result's `.save("choice.json")` wrote.

    Nothing is searched, solved or compiled: `f` is traced once.

    Args:
      path: the file.
      f: a function of the same structure: the same operations on the same shapes.
      *args, **kwargs: its arguments, as for `trace`.

    Returns:
      A function like `auto(f, …).function`: it computes what `f` does when it is loaded, with the variables that `f`
      closes over then, and refuses a call for which `jax.jit` would trace `f` again.

    Raises:
      PlanError: if the file is about another function, or holds no choice; if `f` changes the state of an object.
      OSError: if it cannot be read.

    Example:
      >>> import jax.numpy as jnp, pathlib, tempfile
      >>> from rematscope import auto, load_schedule
      >>> def net(w, x):
      ...     return jnp.sin(jnp.sin(x @ w) @ w).sum()
      >>> args = jnp.ones((8, 8)), jnp.ones((64, 8))
      >>> file = pathlib.Path(tempfile.mkdtemp(), "choice.json")
      >>> auto(net, *args, saved="3 KiB").save(file)
      >>> planned = load_schedule(file, net, *args)
    """
    __tracebackhide__ = True
    if not isinstance(path, str | os.PathLike):
        raise PlanError(f"{path!r} is no path. Give that of a file which auto(f, …).save('choice.json') wrote.")
    text = Path(path).read_bytes()
    no_choice = PlanError(f"{os.fspath(path)} holds no choice. Write one with auto(f, …).save('choice.json').")
    try:
        said = json.loads(text)
        structure, chosen, plain = said["structure"], _places(said["kept"]), _plain(said.get("plain"))
        away = _places(said.get("moved", []))
        stops = [(_places([before])[0], _places(there)) for before, there in said.get("stops", ())]
        segments = [_segments(each) for each in said.get("segments", ())]
        target = str(said.get("target", "cpu"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise no_choice from None
    once, signature = captured(f, args, kwargs), Signature(f, args, kwargs)
    own = once if said.get("checkpoints") else without_checkpoints(once)
    given = own if plain is None else checkpointed(once, plain)
    linearized = linearize(trace(given, *args, **kwargs))
    try:
        linearized = divided(linearized, segments)
    except IndexError:
        raise no_choice from None
    if digest(linearized) != structure:
        raise PlanError(
            f"{os.fspath(path)} is about another function than {linearized.trace.function} with these arguments, or "
            "JAX writes it down otherwise now. Let auto choose again."
        )
    if plain is not None:
        return with_checkpoints(once, signature, plain)
    try:
        kept, moved = values_at(linearized, chosen), values_at(linearized, away)
        made = schedule(linearized, kept, stops_at(linearized, stops), moved, target)
    except IndexError:  # there are not so many values
        raise no_choice from None
    return scheduled_as(once, signature, made)


def _places(said: Any) -> list[int]:
    """A list of places as it stands in a file, where anything may stand."""
    if not isinstance(said, list) or any(type(place) is not int or place < 0 for place in said):
        raise ValueError("these are no places")
    return said


def _segments(said: Any) -> Segments:
    """A loop in segments as it stands in a file."""
    place, iterations, last = _places(said)
    return place, iterations, last


def _block(said: Any) -> Block:
    """A block as it stands in a file."""
    block = tuple(_places(said))
    if len(block) < 2 or block[-2] >= block[-1]:
        raise ValueError("this is no block")
    return block


def _plain(said: Any) -> Plain | None:
    """Plain checkpoints as they stand in a file."""
    if said is None:
        return None
    plain = Plain(
        tuple(map(_block, said["blocks"])),
        said["depth"],
        said["policy"],
        said["own"],
        tuple(map(tuple, map(_places, said["saved"]))),
    )
    depth = [] if plain.depth is None else _places([plain.depth])
    if plain.policy not in (None, *POLICIES) or (depth and plain.blocks):
        raise ValueError("these are no checkpoints")
    return plain
