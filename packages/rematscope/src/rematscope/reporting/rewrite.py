"""`rewrite(f, …)`: a training step, or a loss, with checkpoints, microbatches and donated arguments."""

import contextlib
import dataclasses
import functools
import itertools
import math
import numbers
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import source_info_util
from jax.sharding import AxisType, NamedSharding

from rematscope import jax_compat
from rematscope.errors import PlanError
from rematscope.ir.specs import explicit_sharding, spec_in
from rematscope.jax_compat import varying
from rematscope.jax_compat.vjp_hook import (
    GradientInside,
    announce_gradient,
    donated_operands,
    has_gradient,
    outside_traces,
    raise_at_gradients,
    transform_losses,
)
from rematscope.planning.budget import budget_bytes, budget_code, check_count
from rematscope.reporting.arrays import (
    Arguments,
    arrays_of,
    in_part,
    leaf_axes,
    shardings_of,
    with_python_numbers,
)
from rematscope.reporting.averages import Proof, prove_like, prove_or_explain
from rematscope.reporting.batch_axis import NotPaired
from rematscope.reporting.chunks import ReadsNoBatch, chunked_batch, chunked_head
from rematscope.reporting.flat_step import FlatStep, OtherSizeError, explain_other_size
from rematscope.reporting.nnx_objects import objects_in, set_state, state_of, with_places, without_places
from rematscope.reporting.traced_step import TracedStep
from rematscope.scheduling.auto import planned_in_step
from rematscope.scheduling.blocks import Block, in_blocks, in_iterations, loops_deep
from rematscope.scheduling.calls import calls_around, first_half, partitions, worth_saving
from rematscope.scheduling.cuts import stretches
from rematscope.scheduling.host import MIN_OFFLOADED_BYTES
from rematscope.scheduling.planned import Constant
from rematscope.scheduling.result import reduce_wrapper
from rematscope.scheduling.schedule import check_offloading
from rematscope.tracing.arguments import FlatFunction, callable_name, flattened, is_array
from rematscope.tracing.checkpoints import (
    CalledOnce,
    jaxpr_of,
    recomputes_unrepeatable,
    replace_calls,
    trace_once,
    with_policy,
    without_checkpoints,
)
from rematscope.tracing.static_values import Static, StaticRule, call_with_static, check_hashable, unwrap_static

source_info_util.register_exclusion(__file__)

NESTED = ("groups of layers", "halves of layers")
_LAYERS = ("layers", "all layers but the last", *NESTED)
_LOOPS = ("loops", "inner loops", "offloaded loops")
PLACES = (*_LAYERS, "segments", *_LOOPS, "whole")


@dataclasses.dataclass(frozen=True)
class Changes:
    """The options of `rewrite`."""

    checkpoint: str | None = None
    policy: Callable[..., Any] | None = None
    saved: int | None = None
    auto: int | None = None
    microbatches: int = 1
    chunks: int = 1
    head_chunks: int = 1
    in_axes: tuple[Any, ...] = dataclasses.field(default=(), compare=False)  # equal in all changes to one function
    donate_argnums: tuple[int, ...] = ()

    @property
    def changes_loss(self) -> bool:
        """Whether the changes replace the loss of the step."""
        return self.checkpoint is not None or self.auto is not None or self.chunks * self.head_chunks > 1

    @property
    def of_loss(self) -> "Changes":
        """The changes to the loss alone."""
        return dataclasses.replace(self, microbatches=1, donate_argnums=())

    def __str__(self) -> str:
        """The keyword arguments of `rewrite`, as Python code."""
        parts = [] if self.checkpoint is None else [f"checkpoint={self.checkpoint!r}".replace("'", '"')]
        if self.policy is not None:
            parts.append(f"policy=jax.checkpoint_policies.{jax_compat.policy_name(self.policy)}")
        for name, limit in (("saved", self.saved), ("auto", self.auto)):
            if limit is not None:
                parts.append(f"{name}={budget_code(limit)}")
        for name in ("microbatches", "chunks", "head_chunks"):
            if getattr(self, name) > 1:
                parts.append(f"{name}={getattr(self, name)}")
        if self.microbatches > 1 or self.chunks > 1:
            parts.append(f"in_axes={self.in_axes}".replace("'", '"'))
        if self.donate_argnums:
            parts.append(f"donate_argnums={self.donate_argnums}")
        return ", ".join(parts)


def blocks_of(loss: CalledOnce, place: str, /, *args: Any, **kwargs: Any) -> tuple[Block, ...]:
    """Return the blocks of operations that get a checkpoint for a value of `checkpoint`; none for loops.

    Args:
      loss: the function.
      place: one of `PLACES`.
      *args, **kwargs: its arguments.
    """
    if place not in (*_LAYERS, "segments"):
        return ()
    whole = jaxpr_of(without_checkpoints(loss), *args, **kwargs)
    found = partitions(whole) if place != "segments" else []
    blocks = found[0] if found else stretches(whole, False)
    return blocks[:-1] if place.startswith("all") else blocks


def groups_of(blocks: Sequence[Block]) -> list[Block]:
    """Return blocks that each span about √n of n consecutive blocks of one jaxpr."""
    found = list[Block]()
    for path, same in itertools.groupby(sorted(blocks), lambda block: block[:-2]):
        each = [*same]
        size = math.isqrt(len(each) - 1) + 1
        parts = [each[i : i + size] for i in range(0, len(each), size)]
        found += [(*path, part[0][-2], part[-1][-1]) for part in parts if len(part) > 1]
    return found


def most_valuable(
    loss: CalledOnce, blocks: Sequence[Block], limit: int, /, *args: Any, **kwargs: Any
) -> tuple[Block, ...]:
    """Return operations in blocks whose results avoid the most recompute per byte, within a limit on their bytes."""
    found, left = [], limit
    for operation, nbytes in worth_saving(jaxpr_of(without_checkpoints(loss), *args, **kwargs), blocks):
        if nbytes <= left:
            found.append(operation)
            left -= nbytes
    return tuple(sorted(found))


def with_head_in_chunks(loss: Callable[..., Any], changes: Changes) -> Callable[..., Any]:
    """Return a loss whose head is computed in chunks, with the checkpoints of `changes`."""

    def run(once: CalledOnce, leaves: Sequence[Any]) -> Any:
        try:
            chunked = chunked_head(once.jaxpr, changes.head_chunks)
        except NotPaired:
            raise PlanError(
                f"The head of the loss cannot be computed in head_chunks={changes.head_chunks} chunks. The largest "
                "matmul outside of loops and checkpoints needs an axis, such as the batch or the tokens, whose length "
                f"is a multiple of {changes.head_chunks} and whose positions the loss treats independently. The loss "
                "must not return the result of this matmul. Try another number, or chunks= with in_axes=."
            ) from None
        return once.returning(chunked.run(leaves))

    return replace_calls(with_checkpoints(loss, changes), run)


class _Chunks:
    """The losses of a step in chunks of the batch, with the checkpoints of `changes`.

    A loss that does not read the batch, such as that of a temperature, stays as it is if another loss is divided.

    Args:
      find_parts: a function that returns the jaxprs of the losses for one part of the batch, with these checkpoints, in
        the order of their traces. It is called when the first loss is traced, so that both traces see the same values
        outside of the arguments.
      changes: the changes.
      fail: a function that is called before the step raises an error.
    """

    def __init__(self, find_parts: Callable[[], Iterable[Any]], changes: Changes, fail: Callable[[], None]):
        self._find_parts, self._changes, self._fail = find_parts, changes, fail
        self._parts: Iterator[Any] | None = None
        self._is_divided = False
        self._refusals = list[PlanError]()

    def change(self, loss: Callable[..., Any]) -> Callable[..., Any]:
        """Return a loss in chunks."""
        return replace_calls(with_checkpoints(loss, self._changes), self._run)

    def _next_part(self) -> Any:
        if self._parts is None:
            self._parts = iter(self._find_parts())
        try:
            return next(self._parts)
        except StopIteration:
            raise PlanError("chunks= does not work: the step takes fewer gradients for a part of its batch.") from None

    def _run(self, once: CalledOnce, leaves: Sequence[Any]) -> Any:
        part = self._next_part()  # only now, because a step may catch an error that another loss raises
        count, in_axes = self._changes.chunks, self._changes.in_axes
        try:
            chunked = chunked_batch(once.jaxpr, part, count, self._changes.saved or 0)
        except NotPaired as error:
            refusal = PlanError(f"The loss cannot be computed in {count} chunks along in_axes={in_axes}: {error}")
            if not isinstance(error, ReadsNoBatch):
                raise refusal from None
            self._refusals.append(refusal)
            return once.run(once.jaxpr, leaves)
        self._is_divided = True
        return once.returning(chunked.run(leaves))

    def checked(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a step with these losses that raises PlanError if none of them is divided."""

        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                results = step(*args, **kwargs)
                if self._refusals and not self._is_divided:
                    raise self._refusals[0]
            except BaseException:
                self._fail()
                raise
            return results

        return run


def with_checkpoints(loss: Callable[..., Any], changes: Changes) -> Callable[..., Any]:
    """Return a function with the checkpoints of `changes`."""
    if changes.checkpoint is None:
        return loss

    def changed(*args: Any, **kwargs: Any) -> Any:
        once, _ = trace_once(loss, args, kwargs)
        place, policy = changes.checkpoint, changes.policy
        if place == "whole":
            if recomputes_unrepeatable(once.with_checkpoint):
                raise PlanError(
                    "The loss has an operation whose second run may give another result, such as lax.rng_uniform or a "
                    "callback: with checkpoint='whole', the gradient could be wrong. Use 'layers'."
                )
            return with_policy(once, policy)(*args, **kwargs)
        if place in _LOOPS:
            depth = int(place == "inner loops")
            if loops_deep(jaxpr_of(without_checkpoints(once), *args, **kwargs)) <= depth:
                has_no = "inner loops" if depth else "loops"
                raise PlanError(f"The loss has no {has_no}: checkpoint={place!r} has no effect. Use 'layers'.")
            offload = MIN_OFFLOADED_BYTES if place == "offloaded loops" else None
            if offload:
                check_offloading(jax.default_backend(), f"checkpoint={place!r}", "use 'loops'")
            return in_iterations(once, depth, policy, offload)(*args, **kwargs)
        blocks = blocks_of(once, str(place), *args, **kwargs)
        if not blocks:
            raise PlanError(f"The loss has no repeated {place}: checkpoint={place!r} has no effect.")
        saved: tuple[Block, ...] = ()
        if changes.saved is not None and changes.chunks == 1:  # the loops over chunks choose what they store
            saved = most_valuable(once, blocks, changes.saved, *args, **kwargs)
        nested, is_nested = list(blocks), place in NESTED
        if is_nested:
            whole = jaxpr_of(without_checkpoints(once), *args, **kwargs)
            nested += groups_of(calls_around(whole, blocks))
            if place == "groups of layers" and len(nested) == len(blocks):
                raise PlanError(
                    "The loss has fewer than 2 layers outside of loops that can be in one group: use "
                    "checkpoint='layers'."
                )
            if place == "halves of layers":
                nested += [first_half(whole, block) for block in blocks]
        return in_blocks(once, list(dict.fromkeys(nested)), policy, frozenset(saved), is_nested)(*args, **kwargs)

    return functools.wraps(loss, updated=())(changed)


@dataclasses.dataclass(frozen=True)
class Known:
    """What a report knows about all calls of a function.

    Attributes:
      shardings: how the leaves of the arguments are sharded across devices.
      donated: for each leaf, whether a `jit` around the function donates it.
      prove: a function that returns the proof about the function as written, given the batch axes of the leaves and the
        number of microbatches.
      steps: the function with changes to its loss, as a step of flat arrays, by these changes.
      losses: the jaxprs of the losses of a part of the batch, by the changes to them and the batch axes of the leaves.
    """

    shardings: tuple[NamedSharding | None, ...]
    donated: list[bool]
    prove: Callable[[Sequence[int | None], int], Proof]
    steps: dict[Changes, "_Step"] = dataclasses.field(default_factory=dict)
    losses: dict[tuple[Changes, tuple[int | None, ...]], list[Any]] = dataclasses.field(default_factory=dict)


class Rewritten(Constant):
    """A function with checkpoints, microbatches or donated arguments; see `rewrite`. Call it like the function.

    Args:
      f: the function as written.
      changes: the changes.
      known: what is known about all calls; None if each call has to find it out.
      rule: the static values of the calls of `f`.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        changes: Changes,
        known: Known | None = None,
        rule: StaticRule | None = None,
    ):
        functools.update_wrapper(self, f, updated=())
        self.__name__ = callable_name(f)
        self.__wrapped__ = f
        self.changes, self.known = changes, known
        self._programs: dict[Any, _Program] = {}
        self._one = threading.RLock()
        self._are_steps: dict[Any, bool] = {}  # whether `f` takes a gradient, by the structure of its arguments
        self._rule = rule or StaticRule(f)
        self._failed = 0  # the number of calls in chunks that raised an error

    def __repr__(self) -> str:
        return f"<rewrite({self.__name__}, {self.changes})>"

    def __reduce__(self) -> Any:
        return reduce_wrapper(self, self.__wrapped__, self.changes)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        self._check_place(args, kwargs)
        arguments = self._divided_arguments(args, kwargs)
        if self._needs_jit(arguments):
            return self._program_for(arguments).call(arguments)
        is_step = self.changes.changes_loss and self._is_step(arguments)
        return with_python_numbers(self._with_changed_loss(args, kwargs, is_step)(*args, **kwargs))

    def lower(self, /, *args: Any, **kwargs: Any) -> Any:
        """Lower the function for arguments that are arrays or shapes, like `jax.jit(f).lower`."""
        __tracebackhide__ = True
        arguments = self._divided_arguments(args, kwargs)
        if self._needs_jit(arguments):
            program = self._program_for(arguments)
            return _Stage(self, program, program.lower(arguments))
        is_step = not self.changes.changes_loss or self._is_step(arguments)
        if hasattr(self.__wrapped__, "lower") and is_step:
            return self._with_changed_loss(args, kwargs, is_step, "lower")(*args, **kwargs)
        return jax.jit(arguments.bound(self)).lower(*arguments.args, **arguments.kwargs)

    def _check_place(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raise PlanError inside a `shard_map` for which the changes cannot be made."""
        if AxisType.Manual not in jax.sharding.get_abstract_mesh().axis_types:
            return
        advice = f"Rewrite the function that contains the shard_map, instead of calling {self.__name__} inside it"
        if self.changes.auto is not None:
            raise PlanError(f"auto= does not work inside a shard_map. {advice}, or use rematscope.auto.")
        varies = [varying(jax.typeof(leaf)) for leaf in jax.tree.leaves((args, kwargs)) if is_array(leaf)]
        if self.changes.microbatches * self.changes.chunks > 1 and any(varies):
            raise PlanError(
                "chunks= and microbatches= do not work inside a shard_map with check_vma=True, which checks what "
                f"varies over devices. {advice}, or pass check_vma=False to the shard_map."
            )

    def _divided_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        return Arguments(args, kwargs, self._rule(args, kwargs))

    def _needs_jit(self, arguments: Arguments) -> bool:
        """Return whether the changes need a separate `jit` of the function, as a function of flat arrays.

        The loss in chunks is compared with a trace for a part of the batch. A step that is not jitted calls its loss
        with values, such as Python's numbers, that are traced there, and the loss may compute other operations.
        """
        changes, is_jitted = self.changes, hasattr(self.__wrapped__, "lower")
        if changes.microbatches > 1 or changes.donate_argnums:
            return True
        return changes.chunks > 1 and not is_jitted and self._is_step(arguments)

    def _is_step(self, arguments: Arguments) -> bool:
        """Return whether the function takes a gradient itself; found out at the first call of each structure.

        A step with a flag such as `train=False` may take a gradient in some of its calls only.
        """
        try:
            key = self._structure_key(arguments)
        except PlanError:  # a static value that cannot be hashed, and may change from call to call
            return takes_gradient(self.__wrapped__, arguments)
        if key not in self._are_steps:
            self._are_steps[key] = takes_gradient(self.__wrapped__, arguments)
        return self._are_steps[key]

    def _with_changed_loss(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], is_step: bool, method: str = ""
    ) -> Callable[..., Any]:
        """Return the function, or one of its methods, with the changes to its loss."""
        f, changes = self.__wrapped__, self.changes
        if not changes.changes_loss:
            return getattr(f, method) if method else f
        change: Callable[[Any], Any] = functools.partial(with_checkpoints, changes=changes)
        checked: Callable[[Any], Any] = lambda step: step  # noqa: E731
        key: Any = self
        if changes.auto is not None:
            change = functools.partial(
                planned_in_step, peak=changes.auto, target=jax.default_backend(), step=self.__name__
            )
        elif changes.head_chunks > 1:
            change = functools.partial(with_head_in_chunks, changes=changes)
        elif changes.chunks > 1:
            arguments = self._divided_arguments(args, kwargs)
            chunks = _Chunks(
                functools.partial(self._losses_of_a_part, arguments, is_step), changes, self._count_failure
            )
            change, checked = chunks.change, chunks.checked
            # All jitted losses of a call are in JAX's caches, or none is: otherwise, the next part could be another's.
            # After an error, which may have left only some of them there, all are traced again.
            leaves = jax.tree.leaves((arguments.args, arguments.kwargs))
            key = self, self._failed, self._structure_key(arguments), _leaf_types(leaves)
        if not is_step:
            return checked(lambda *args, **kwargs: self._changed_loss(change, args, kwargs))
        return checked(transform_losses(getattr(f, method) if method else f, change, key))

    def _count_failure(self) -> None:
        self._failed += 1

    def _changed_loss(self, change: Callable[[Any], Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        f, given, named = call_with_static(self.__wrapped__, args, kwargs, self._rule)
        return unwrap_static(change(f)(*given, **named))

    def _losses_of_a_part(self, arguments: Arguments, is_step: bool) -> list[Any]:
        axes = self._leaf_axes(arguments)
        step = FlatStep(self, jax.tree.leaves((arguments.args, arguments.kwargs)), axes, self.__name__)
        step.check_parts(self.changes.chunks, "chunks")
        changes = dataclasses.replace(self.changes.of_loss, saved=None)  # a part stores no results for later loops
        key = changes, tuple(axes)
        if self.known is not None and key in self.known.losses:
            return self.known.losses[key]
        try:
            found = losses_of(self.__wrapped__, arguments, axes, changes, is_step)
            if self.known is not None:
                self.known.losses[key] = found
            return found
        except PlanError:
            raise
        except Exception as error:  # any error that the function raises for another batch size
            raise OtherSizeError(explain_other_size(step, error, "chunks")) from error

    def _leaf_axes(self, arguments: Arguments) -> list[int | None]:
        try:
            return leaf_axes(arguments.args, arguments.kwargs, self.changes.in_axes)
        except ValueError as error:
            raise PlanError(f"in_axes={self.changes.in_axes} does not match the arguments: {error}") from None

    def _program_for(self, arguments: Arguments) -> "_Program":
        key = self._structure_key(arguments)
        with self._one:
            if key not in self._programs:
                self._programs[key] = _Program(self, arguments)
            return self._programs[key]

    def check(self, arguments: Arguments) -> None:
        """Raise PlanError if a call with these arguments has no program, for example because of their static values."""
        self._program_for(arguments)

    def step(self, arguments: Arguments) -> "_Step":
        """Return the function, with only the changes to its loss, as a function of flat arrays."""
        made = _Step(self, arguments, self._structure_key(arguments)[0])
        return made if self.known is None else self.known.steps.setdefault(self.changes.of_loss, made)

    def _leaf_shardings(self, arguments: Arguments) -> tuple[NamedSharding | None, ...]:
        if self.known is not None:
            return self.known.shardings
        return shardings_of(jax.tree.leaves((arguments.args, arguments.kwargs)))

    def _structure_key(self, arguments: Arguments) -> tuple[Any, ...]:
        """Return the tree of the arguments, with its static values, the shared variables, and the shardings."""
        check_hashable((arguments.args, arguments.kwargs))
        tree = jax.tree.structure((arguments.args, arguments.kwargs))
        return tree, arguments.firsts, self._leaf_shardings(arguments)


def _leaf_types(leaves: Iterable[Any]) -> Any:
    avals: list[Any] = [jax.typeof(leaf) for leaf in leaves]
    return tuple((a.shape, a.dtype, bool(getattr(a, "weak_type", False)), _explicit_key(a)) for a in avals)


def _explicit_key(aval: Any) -> Any:
    """Return the sharding of a type over explicit mesh axes, equal for abstract and other meshes; None for others."""
    sharding = explicit_sharding(aval)
    if sharding is None:
        return None
    spec = spec_in(sharding, len(aval.shape))
    return spec.axes, spec.unreduced, tuple(spec.sizes.items())


class _Step:
    """A rewritten function, with only the changes to its loss, as a function of flat arrays.

    Args:
      function: the function.
      arguments: the arguments of a call of it.
      tree: the structure of these.
    """

    def __init__(self, function: Rewritten, arguments: Arguments, tree: Any):
        self._function, self._arguments, self._tree = function, arguments.without_arrays(), tree
        self._is_step = function.changes.changes_loss and function._is_step(arguments)  # decided before the trace
        self._outs = dict[Any, Any]()  # what the function returned while it was traced, by the types of its arguments
        self._traced: TracedStep | None = None

    def run(self, *leaves: Any) -> list[Any]:
        """Run the function, and return the leaves of its outputs, then those of the objects that it may change."""

        def changed(*args: Any, **kwargs: Any) -> Any:
            return self._function._with_changed_loss(args, kwargs, self._is_step)(*args, **kwargs)

        results = self._call_function(changed, leaves)
        arrays = arrays_of(results)
        self._outs[_leaf_types(leaves)] = jax.tree.structure(arrays), results
        return jax.tree.leaves(arrays)

    def run_as_written(self, *leaves: Any) -> list[Any]:
        """Run the function as written, and return the same."""
        return jax.tree.leaves(arrays_of(self._call_function(self._function.__wrapped__, leaves)))

    def _call_function(self, f: Callable[..., Any], leaves: Sequence[Any]) -> tuple[Any, Any]:
        """Return what `f` returns, and the new state of the objects of nnx among its arguments."""
        args, kwargs = self._arguments.all(*jax.tree.unflatten(self._tree, leaves))
        objects = objects_in((args, kwargs))
        returned = f(*args, **kwargs)
        return with_places(returned, objects, self._function.__name__), state_of(objects)

    def returned(self, leaves: Sequence[Any]) -> Any:
        """Return the structure of the outputs of `run` for such leaves, and these outputs while it was traced."""
        return self._outs[_leaf_types(leaves)]

    def traced(self, leaves: Sequence[Any], axes: Sequence[int | None]) -> TracedStep:
        """Return the step for leaves of these types, whose traces are shared by all calls of this method."""
        if self._traced is None:
            self._traced = TracedStep(FlatStep(self.run, leaves, axes, self._function.__name__))
        return self._traced.along(axes)


class _Program:
    """A rewritten function for arguments of one structure, as a jitted function of flat arrays."""

    def __init__(self, function: Rewritten, arguments: Arguments):
        self._function, known = function, function.known
        changes, f = function.changes, function.__wrapped__
        self._step = function.step(arguments)
        self._axes = function._leaf_axes(arguments) if changes.microbatches > 1 else []
        self._leaf_shardings = function._leaf_shardings(arguments)
        over = _in_argnums(arguments, changes.donate_argnums, "donate_argnums", function.__name__)
        already = _already_donated(f, arguments) if known is None else known.donated
        self._donated = [one or other for one, other in zip(over, already, strict=True)]
        self._outs_of_traces = list[Any]()  # what the function returned in each trace of `_run_flat`
        self._jitted = jax.jit(self._run_flat, donate_argnums=(1,))

    def _run_flat(self, kept: list[Any], overwritten: list[Any]) -> tuple[list[Any], Static]:
        """Return the leaves of the function's outputs, then those of the objects that it may change in place.

        The number of the trace is part of the result, because JAX may trace a function several times for the same
        types, for example with and without `jax.enable_x64`.
        """
        parts = iter(kept), iter(overwritten)
        leaves = [next(parts[one]) for one in self._donated]
        results = self._step.run(*leaves) if self._function.changes.microbatches == 1 else self._averaged(leaves)
        self._outs_of_traces.append(self._step.returned(leaves))
        return results, Static(len(self._outs_of_traces) - 1)

    def _averaged(self, leaves: list[Any]) -> list[Any]:
        """Return the same, computed in microbatches; raise PlanError if they might not give the gradient.

        The proof belongs to the same trace, because a later one may see other values outside of the arguments.
        """
        function, count, step = self._function, self._function.changes.microbatches, self._step
        known, changes_loss = function.known, function.changes.changes_loss
        if known is not None:
            proof, traced = known.prove(self._axes, count), step.traced(leaves, self._axes)
        else:
            traced = TracedStep(FlatStep(step.run, leaves, self._axes, function.__name__))
            as_written = dataclasses.replace(traced.step, run=step.run_as_written)
            proof = prove_or_explain(TracedStep(as_written) if changes_loss else traced, count)
        if changes_loss and not proof.why:
            proof = prove_like(traced, proof)
        return proof.results(leaves, self._leaf_shardings)

    def _split_leaves(self, arguments: Arguments) -> tuple[list[Any], list[Any]]:
        """Return the leaves that are read only, and those that are overwritten.

        JAX refuses to donate an array that the call uses twice, such as weights whose moving average starts as the same
        arrays. Such an array is overwritten once, and copied for its other uses.
        """
        leaves = jax.tree.leaves((arguments.args, arguments.kwargs))
        kept = [leaf for leaf, one in zip(leaves, self._donated, strict=True) if not one]
        used, overwritten = set(map(id, kept)), []
        for leaf in (leaf for leaf, one in zip(leaves, self._donated, strict=True) if one):
            again = id(leaf) in used and isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer)
            used.add(id(leaf))
            overwritten.append(jnp.copy(leaf) if again else leaf)
        return kept, overwritten

    def call(self, arguments: Arguments, compiled: Callable[..., Any] | None = None) -> Any:
        """Run the program, and write the new state of objects such as nnx modules into them."""
        if self._function.changes.microbatches > 1:  # the program of a microbatch contains the gradient as equations
            announce_gradient()
        results, trace = (compiled or self._jitted)(*self._split_leaves(arguments))
        tree, before = self._outs_of_traces[trace.value]
        returned, state = _with_arrays(before, jax.tree.unflatten(tree, results))
        objects = objects_in(arguments.given)
        set_state(objects, state)
        return with_python_numbers(without_places(returned, objects))

    def lower(self, arguments: Arguments) -> Any:
        """Lower the program."""
        return self._jitted.lower(*self._split_leaves(arguments))


class _Stage:
    """A lowered or compiled program of flat arrays, which is called like the function that it was made from."""

    def __init__(self, function: Rewritten, program: _Program, stage: Any):
        self._function, self._program, self._stage = function, program, stage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage, name)

    def compile(self, *args: Any, **kwargs: Any) -> "_Stage":
        return _Stage(self._function, self._program, self._stage.compile(*args, **kwargs))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        arguments = self._function._divided_arguments(args, kwargs)
        program = self._function._program_for(arguments)
        if program is not self._program:
            raise TypeError(
                f"{self._function.__name__} was compiled for arguments of another structure. Lower and compile it for "
                "these."
            )
        return program.call(arguments, self._stage)


def _with_arrays(returned: Any, arrays: Any) -> Any:
    """Return what a function returned while it was traced, with arrays in place of tracers.

    Python's numbers stay numbers. An Equinox module, for example, has settings that are no arrays.
    """

    def combined(one: Any, array: Any) -> Any:
        return one if array is None or isinstance(one, numbers.Number) else array

    return jax.tree.map(combined, returned, arrays, is_leaf=lambda v: v is None)


def _in_argnums(arguments: Arguments, argnums: Iterable[int], option: str, function: str) -> list[bool]:
    """Return for each leaf whether it belongs to one of the positional arguments in `argnums`."""
    found = []
    for which, tree in enumerate(arguments.args):
        found += [which in argnums] * len(jax.tree.leaves(tree))
    if any(not 0 <= number < len(arguments.args) for number in argnums):
        raise PlanError(
            f"{option}={tuple(argnums)} is out of range: {function} was called with {len(arguments.args)} positional "
            "arguments."
        )
    return found + [False] * len(jax.tree.leaves(arguments.kwargs))


def _already_donated(f: Callable[..., Any], arguments: Arguments) -> list[bool]:
    """Return for each leaf whether a `jit` around the function already donates it."""
    count = len(jax.tree.leaves((arguments.args, arguments.kwargs)))
    if not hasattr(f, "lower"):
        return [False] * count
    flat, leaves = flattened(arguments.bound(f), arguments.args, arguments.kwargs)
    with outside_traces(keeps_axes=True):
        shown = set(donated_operands(jax_compat.make_jaxpr(flat.updating)(*leaves)))
    return [i in shown for i in range(count)]


def losses_of(
    f: Callable[..., Any], arguments: Arguments, axes: Sequence[int | None], changes: Changes, is_step: bool
) -> list[Any]:
    """Return the jaxprs of the losses that a step takes gradients of, for one part of the batch.

    Args:
      f: the step, or a loss.
      arguments: its arguments.
      axes: the batch axis of each leaf of them.
      changes: the number of parts, and the checkpoints of the loss.
      is_step: whether `f` takes a gradient itself.
    """
    found = only_loss_of(f, arguments, axes, changes, is_step)
    return [found] if found is not None else _recorded_losses(f, arguments, axes, changes, differentiate=True)


def only_loss_of(
    f: Callable[..., Any], arguments: Arguments, axes: Sequence[int | None], changes: Changes, is_step: bool
) -> Any | None:
    """Return the jaxpr of the loss of a step that takes one gradient; None if this is not certain.

    The step gets zeros in place of its gradient. This takes less time than a trace of the gradient and of what the step
    computes from it. The arguments are those of `losses_of`.
    """
    if not is_step:
        flat, shapes = _flat_part(f, arguments, axes, changes.chunks)
        with outside_traces(keeps_axes=True):
            return jax_compat.make_jaxpr(with_checkpoints(flat, changes))(*shapes)
    with contextlib.suppress(Exception):  # any error of a step that needs the values of its gradient
        found = _recorded_losses(f, arguments, axes, changes, differentiate=False)
        if len(found) == 1:
            return found[0]
    return None


def _flat_part(
    f: Callable[..., Any], arguments: Arguments, axes: Sequence[int | None], count: int
) -> tuple[FlatFunction, list[Any]]:
    """Return a function of flat arrays, and the types of its arguments for one of `count` parts of the batch."""
    flat, leaves = flattened(arguments.bound(f), arguments.args, arguments.kwargs)
    return flat, [in_part(leaf, axis, count) for leaf, axis in zip(leaves, axes, strict=True)]


def _recorded_losses(
    f: Callable[..., Any], arguments: Arguments, axes: Sequence[int | None], changes: Changes, differentiate: bool
) -> list[Any]:
    """Return the jaxprs of the losses that a step takes gradients of, for one part of the batch.

    Args:
      f, arguments, axes, changes: as for `losses_of`.
      differentiate: whether the step gets the values of its losses and gradients. Otherwise, it gets zeros. Then only
        the first loss is certain, because others may depend on these values.

    Raises:
      _SecondLoss: if the step has a second loss and gets zeros.
    """
    found = []

    def record(once: CalledOnce, leaves: Sequence[Any]) -> Any:
        found.append(once.jaxpr)
        if differentiate:
            return once.run(once.jaxpr, leaves)
        if len(found) > 1:
            raise _SecondLoss
        return once.returning([jnp.zeros(aval.shape, aval.dtype) for aval in once.jaxpr.out_avals])

    change = lambda loss: replace_calls(with_checkpoints(loss, changes), record)  # noqa: E731
    flat, shapes = _flat_part(f, arguments, axes, changes.chunks)
    changed = transform_losses(flat, change)
    with outside_traces(keeps_axes=True):
        jax_compat.make_jaxpr(lambda *leaves: arrays_of(changed(*leaves)))(*shapes)
    return found


class _SecondLoss(Exception):
    """Raised at the second loss of a step that needs the values of its first gradient."""


def takes_gradient(f: Callable[..., Any], arguments: Arguments) -> bool:
    """Return whether a function takes a gradient itself, as a training step does."""
    flat, leaves = flattened(arguments.bound(f), arguments.args, arguments.kwargs)
    with outside_traces(keeps_axes=True):
        try:
            return has_gradient(jax_compat.make_jaxpr(raise_at_gradients(flat))(*leaves))
        except GradientInside:
            return True


def rewrite(
    f: Callable[..., Any],
    *,
    checkpoint: str | None = None,
    policy: Callable[..., Any] | None = None,
    saved: int | str | None = None,
    auto: int | str | None = None,
    microbatches: int = 1,
    chunks: int = 1,
    head_chunks: int = 1,
    in_axes: Sequence[Any] = (),
    donate_argnums: int | Sequence[int] = (),
) -> Rewritten:
    """Rewrite a training step, or a loss, so that it needs less memory.

    The returned function computes the same results as `f`. `rewrite` puts checkpoints into the function whose gradient
    the step takes, whether with `jax.grad`, `jax.value_and_grad`, `jax.vjp` or their variants in Flax and Equinox.

    With `microbatches`, `donate_argnums` or, for a step, `chunks`, the returned function is jitted, whether or not `f`
    is. As for `jax.jit`, Python values that `f` reads but does not get as arguments are those at the time of its trace.

    Args:
      f: a training step, or a loss. It may be jitted.
      checkpoint: where to put checkpoints: `"layers"` for one checkpoint around each call of the repeated layer; `"all
        layers but the last"`; `"groups of layers"` for further checkpoints, each around about √n of the n layers, so
        that the inputs of about 2√n layers are live at once, and the layers are computed up to three times; `"halves of
        layers"` for these and one around the first half of each layer, which is computed up to four times; `"segments"`
        for checkpoints around segments, which begin and end where few bytes are live; `"loops"` for one around the body
        of each `scan`; `"inner loops"` for one around the body of each `scan` inside another `scan`; `"offloaded
        loops"` for `"loops"` with the loops' carries in host memory until the backward pass reads them, if a carry
        takes 1 MiB or more for all iterations; or `"whole"` for the loss's own checkpoints, or one around the whole
        loss if it has none. Except for `"whole"`, the new checkpoints replace the loss's own.
      policy: the policy of each checkpoint, as for `jax.checkpoint`.
      saved: instead of `policy`, a limit on the saved bytes, such as `"120 MiB"`. Within this limit, the checkpoints
        around layers or segments save the results of the matmuls and convolutions that avoid the most recompute per
        byte. With `chunks`, the loops over chunks store results of all checkpoints within this limit.
      auto: instead of checkpoints and chunks, a limit on the peak of the loss's gradient, such as `"2 GiB"`. The loss
        gets the plan that `auto` makes for this limit and for the device that JAX uses. The plan is made when the step
        is traced. The peak of the step may differ from this limit: the step also holds the state of the optimizer, but
        needs no cotangents of the loss's auxiliary results.
      microbatches: the number of microbatches that the batch is split into. Their gradients are computed one after the
        other and averaged. Each time that the returned function is traced, such as at the first call with new shapes,
        it proves from the program of `f` that the results stay the same, and refuses the call if it cannot. So it
        refuses a loss that is neither a mean nor a sum over the examples, such as one with batch normalization. Values
        that the loss computes from data only, such as the sum of the mask in a weighted mean, are computed for the
        whole batch first. Gradients per example, inside of `jax.vmap`, are added up if the step does so. Each
        microbatch uses its part of the batch's random numbers, such as dropout masks.
      chunks: the number of chunks of the batch that the loss is computed in, each with a checkpoint around it. The
        result equals that of `f` for any loss: operations across examples, such as batch normalization, still run on
        the whole batch, and random numbers stay the same. Values inside of checkpoints are recomputed instead of stored
        for a loop over the chunks that follows such an operation, at the cost of one more run per such loop.
      head_chunks: the number of chunks that the head of the loss is computed in, each with a checkpoint around it. The
        head is the end of the loss, which starts at the matmul with the largest result, such as the logits of a
        language model. The chunks divide the batch, the tokens or another axis of this matmul's operand: the axis that
        leaves the fewest bytes outside of the chunks, or the longest of these axes if there are several. The result
        equals that of `f`, as for `chunks`. This option does not need `in_axes`.
      in_axes: for `microbatches` and `chunks`, the batch axis of each positional argument, as for `jax.vmap`: an
        integer, None for an argument without a batch axis, or a container with the structure of the argument, such as
        `(None, None, {"tokens": 0, "positions": None})`. For a named tuple or a dataclass, a dictionary gives the axes
        of some of its fields: `({"carry": 0}, 1)`. If the step takes its batch as keyword arguments, the last
        entry, after those of all positional arguments, is a dictionary of their axes by name.
      donate_argnums: the indices of positional arguments whose buffers may be reused, as for `jax.jit`. The caller must
        not use these arguments after the call.

    Returns:
      A callable like `f`. Its `.lower(*args)` method lowers it, as for a `jax.jit` function.

    Raises:
      PlanError: immediately, if an option is not valid. During a call, if the loss has no place for the checkpoints, if
        the step cannot be split into microbatches or chunks, or if microbatches might change its results.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from rematscope import rewrite
      >>> def loss(ws, x):
      ...     for w in ws:
      ...         x = jnp.sin(x @ w)
      ...     return jnp.mean(x)
      >>> def step(ws, x):
      ...     return jax.tree.map(lambda w, g: w - g, ws, jax.grad(loss)(ws, x))
      >>> step = rewrite(step, checkpoint="whole", microbatches=4, in_axes=(None, 0))
      >>> new = step([jnp.ones((8, 8))] * 3, jnp.ones((16, 8)))
      >>> new[0].shape
      (8, 8)
    """
    if checkpoint is not None and checkpoint not in PLACES:
        raise PlanError(f"checkpoint={checkpoint!r} is not known. Choose one of {', '.join(map(repr, PLACES))}.")
    if policy is not None and not callable(policy):
        raise PlanError(f"policy={policy!r} is not a function such as jax.checkpoint_policies.dots_saveable.")
    if (policy is not None or saved is not None) and checkpoint is None:
        raise PlanError("policy= and saved= need checkpoints. Add checkpoint='layers'.")
    if policy is not None and checkpoint == "offloaded loops":
        raise PlanError("checkpoint='offloaded loops' has a policy of its own. Remove policy=, or use 'loops'.")
    places = ("layers", "all layers but the last", "segments", *((*NESTED, "whole") if chunks > 1 else ()))
    if saved is not None and (policy is not None or checkpoint not in places):
        raise PlanError(
            "saved= is for checkpoint='layers' or 'segments' without a policy=. With chunks=, it is also for the other "
            "values of checkpoint= except those for loops."
        )
    for name, number in (("microbatches", microbatches), ("chunks", chunks), ("head_chunks", head_chunks)):
        check_count(number, name)
        if number > 1 and name != "head_chunks" and not jax.tree.leaves(tuple(in_axes)):
            raise PlanError(f"{name}= needs in_axes=, the axis of the batch in each argument, such as (None, 0).")
    if auto is not None and (checkpoint is not None or max(microbatches, chunks, head_chunks) > 1):
        raise PlanError("auto= combines with donate_argnums= only. Remove the other changes.")
    if sum(number > 1 for number in (microbatches, chunks, head_chunks)) > 1:
        raise PlanError("microbatches=, chunks= and head_chunks= do not combine. Choose one of them.")
    donated = (donate_argnums,) if isinstance(donate_argnums, int) else tuple(donate_argnums)
    limit = None if saved is None else budget_bytes(saved, "saved")
    peak = None if auto is None else budget_bytes(auto, "auto")
    changes = Changes(checkpoint, policy, limit, peak, microbatches, chunks, head_chunks, tuple(in_axes), donated)
    return Rewritten(f, changes)
