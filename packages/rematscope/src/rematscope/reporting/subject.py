"""The subject of a report: a function and its arguments, traced as written and with changes."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from rematscope.errors import PlanError, describe_error
from rematscope.ir.cost import operations
from rematscope.ir.gc_pause import gc_paused
from rematscope.ir.program import Value, type_text
from rematscope.memory.xla_estimate.estimate import Allocations, allocations
from rematscope.reporting.arrays import Arguments, fields_of, leaf_axes, shardings_of
from rematscope.reporting.averages import Proof, prove_or_explain
from rematscope.reporting.batch_axis import NotPaired
from rematscope.reporting.chunks import ChunkedLoss, ReadsNoBatch, chunked_batch
from rematscope.reporting.flat_step import FlatStep, OtherSizeError, batch_shape
from rematscope.reporting.head_axes import first_of_head, program_with_head
from rematscope.reporting.rewrite import Changes, Known, Rewritten, blocks_of, only_loss_of, takes_gradient
from rematscope.reporting.traced_step import TracedStep
from rematscope.scheduling.blocks import loops_deep
from rematscope.seconds.devices import Device
from rematscope.seconds.roofline import estimate_time
from rematscope.tracing.arguments import FlatFunction, argument_paths, callable_name, flattened
from rematscope.tracing.checkpoints import CalledOnce, checkpoints
from rematscope.tracing.static_values import StaticRule
from rematscope.tracing.step import with_donated
from rematscope.tracing.trace import Trace, trace_call, whole_cost
from rematscope.xla.compiling import compile_both
from rematscope.xla.measure import Measurement


@dataclasses.dataclass(frozen=True, eq=False)
class Traced:
    """A function with some changes, traced.

    Attributes:
      changes: the changes.
      passes: the trace.
      target: the device that `memory` is predicted for.
      work: the FLOPs, and 1 for each element of a transcendental function.
      seconds: the predicted time of the step; 0 without a device.
      link_bytes: the bytes that each device sends to other devices, and to host memory and back, as far as the trace
        shows them.
    """

    changes: Changes
    passes: Trace
    target: str
    work: int
    seconds: float
    link_bytes: int

    @functools.cached_property
    def memory(self) -> Allocations:
        """The buffers that the compiler is predicted to allocate."""
        return allocations(self.passes, self.target)


class Subject:
    """A function and its arguments.

    Attributes:
      f: the function as written.
      name: its name.
      is_step: whether it takes a gradient itself.
      arguments: the arrays among its arguments.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        device: Device | None,
        target: str,
    ):
        flattened(f, (), {})
        self.f, self.name, self.device, self.target = f, callable_name(f), device, target
        self._rule = StaticRule(f)
        self.arguments = Arguments(args, kwargs, self._rule(args, kwargs))
        self.is_step = takes_gradient(f, self.arguments)
        self._traced: dict[Changes, Traced] = {}
        self._proofs: dict[tuple[tuple[int | None, ...], int], Proof] = {}  # by axes and numbers of microbatches
        self._length_error = ""  # the step's first error for another length of an axis
        self._refused_axes: tuple[Any, ...] = ()  # the axes of this error; () if it is not the step that raises it
        self._other_axes: tuple[Any, ...] = ()  # the axes of microbatches, if they are not those of `in_axes`
        # The work of the search so far: the operations of the function, per trace, candidate for `in_axes` and proof.
        self.operations = 0

    def changed(self, changes: Changes, is_checked: bool = False) -> Callable[..., Any]:
        """Return the function with some changes; `is_checked` is for calls with the arguments of the report only."""
        if changes == Changes():
            return self.f
        return Rewritten(self.f, changes, self._known if is_checked else None, self._rule)

    @functools.cached_property
    def _known(self) -> Known:
        step = self.traced(Changes()).passes.step
        donated = [False] * len(self._flat_leaves) if step is None else [v in step.donated for v in step.program.inputs]
        return Known(shardings_of(self._flat_leaves), donated, self._prove)

    @gc_paused()
    def traced(self, changes: Changes) -> Traced:
        """Return the function with some changes, traced.

        Raises:
          PlanError: if the changes cannot be applied to it.
        """
        if changes not in self._traced:
            if changes.donate_argnums:
                self._traced[changes] = self._with_donation(changes)
                return self._traced[changes]
            if changes != Changes():
                self.operations += self.size
            f = self.arguments.bound(self.changed(changes, is_checked=True))
            differentiate = False if self.is_step else None
            try:
                passes = trace_call(f, self.arguments.args, self.arguments.kwargs, differentiate)
            except OtherSizeError:
                self.operations -= self.size  # it takes far less time than a trace
                raise
            self._check_outputs(passes)
            cost = whole_cost(passes)
            offloaded = changes.microbatches * passes.host_bytes()
            work, link_bytes = operations(cost), cost.link_bytes + 2 * offloaded
            seconds = self._predicted_seconds(passes, offloaded)
            self._traced[changes] = Traced(changes, passes, self.target, work, seconds, link_bytes)
        return self._traced[changes]

    def _predicted_seconds(self, passes: Trace, offloaded: int) -> float:
        """Return the predicted time of a step that offloads so many bytes; 0 without a device."""
        if self.device is None:
            return 0.0
        time = estimate_time(passes, self.device)
        if not offloaded or not self.device.host:
            return time.step
        transfer = offloaded / self.device.host
        return time.step + max(0.0, transfer - time.forward) + transfer  # only transfers to the host overlap

    def _with_donation(self, changes: Changes) -> Traced:
        """Return the trace of changes that donate arguments: the program is that of the changes without donation."""
        alone = Changes(donate_argnums=changes.donate_argnums)
        if changes == alone:  # the donation itself may be refused, for example if a static value cannot be hashed
            Rewritten(self.f, alone, self._known, self._rule).check(self.arguments)
        else:
            self.traced(alone)
        found = self.traced(dataclasses.replace(changes, donate_argnums=()))
        step = found.passes.step
        assert step is not None, "only steps have arguments that they update"
        inputs = iter(step.program.inputs)
        of_arguments = [[next(inputs) for _ in leaves] for leaves in self._argument_leaves]
        donated = {v for number in changes.donate_argnums for v in of_arguments[number]}
        passes = dataclasses.replace(found.passes, step=with_donated(step, donated))
        return dataclasses.replace(found, changes=changes, passes=passes)

    @functools.cached_property
    def size(self) -> int:
        """The number of operations of the function as written, with its gradient; those of a loop count once."""
        passes = self.traced(Changes()).passes
        programs = [passes.step.program] if passes.step else [passes.forward, passes.backward]
        return sum(1 for program in programs for _ in program.walk())

    def _check_outputs(self, passes: Trace) -> None:
        """Raise PlanError if a changed step returns arrays of other shapes than the step as written."""
        base = self._traced.get(Changes())
        if base is None or base.passes.step is None or passes.step is None:
            return
        before, after = ([v.shape for v in p.step.program.outputs] for p in (base.passes, passes) if p.step is not None)
        if before != after:
            raise PlanError(f"{self.name} would return arrays of other shapes in microbatches.")

    def compiled(self, changes: Changes) -> Measurement:
        """Compile the function with some changes."""
        found = self.traced(changes)
        made = compile_both(found.passes, *self._flattened(changes), self.target)
        return Measurement(found.passes, self.target, made)

    def _flattened(self, changes: Changes) -> tuple[FlatFunction, list[Any]]:
        """Return the function with some changes as a function of the leaves of its arguments, and these leaves."""
        f = self.arguments.bound(self.changed(changes, is_checked=True))
        return flattened(f, self.arguments.args, self.arguments.kwargs)

    # The roles of the arguments in the step

    @functools.cached_property
    def _argument_leaves(self) -> list[list[Any]]:
        return [jax.tree.leaves(tree) for tree in self._argument_trees]

    @property
    def _argument_trees(self) -> list[Any]:
        """The positional arguments, and the keyword arguments as one dictionary if there are any."""
        return [*self.arguments.args, *([dict(self.arguments.kwargs)] if self.arguments.kwargs else [])]

    @functools.cached_property
    def updated_argnums(self) -> tuple[int, ...]:
        """The indices of positional arguments with parameters or optimizer state, of which nothing is donated yet.

        It leaves out arguments in whose buffers few bytes of the results fit, such as a learning rate or the key of
        noise for the gradients: callers may pass the same array to the next step.
        """
        step = self.traced(Changes()).passes.step
        if step is None:
            return ()
        inputs = iter(step.program.inputs)
        values = [[next(inputs) for _ in leaves] for leaves in self._argument_leaves[: len(self.arguments.args)]]
        updated = step.parameters | step.state
        already = sum(result.device_bytes for result in step.aliased)
        reused = {
            which: sum(result.device_bytes for result in with_donated(step, each).aliased) - already
            for which, each in enumerate(values)
            if not updated.isdisjoint(each) and not step.donated.intersection(each)
        }
        return tuple(which for which, nbytes in reused.items() if nbytes > _FEW_REUSED * sum(reused.values()))

    @functools.cached_property
    def in_axes(self) -> tuple[Any, ...]:
        """The batch axes of the arguments, as for `rewrite`; () if none were found.

        If there are several candidates, it is the one along which most bytes of the loss's values can be divided.
        """
        whole = self._loss_jaxprs
        best, most = (), 0
        candidates = self._axes_candidates()
        for candidate in candidates:
            self.operations += self.size
            try:
                hidden, every = self._hidden_bytes(whole, candidate)
            except Exception as error:  # any error of the step for another length of this axis
                if not self._length_error:
                    self._length_error = describe_error(error)
                    self._refused_axes = () if isinstance(error, NotPaired) else candidate
                # Different axes of two arguments, such as time and batch, may have the same length.
                candidates += [each for each in self._by_argument(candidate) if each not in candidates]
                continue
            if hidden > _CLEARLY * most:
                best, most = candidate, hidden
            if _CLEARLY * most >= every:
                break  # no other axis is preferred
        return best or next(filter(self._divides_gradients, candidates), ())

    def _divides_gradients(self, in_axes: tuple[Any, ...]) -> bool:
        """Return whether the step's gradient is proved to be computed by two or more microbatches along axes."""
        count = divisors(self.batch_size(in_axes))[0]
        return self.is_step and not self._prove(self._leaf_axes(in_axes), count).why

    @functools.cached_property
    def _loss_jaxprs(self) -> list[Any]:
        self.operations += self.size
        return self._losses_of_a_part([None] * len(self._flat_leaves), 1)

    def _losses_of_a_part(self, axes: Sequence[int | None], count: int, may_be_one: bool = True) -> list[Any]:
        """Return the jaxprs of the losses for one of `count` parts of the batch.

        For several losses, the whole step is traced. Proofs of microbatches use the same trace.
        """
        if may_be_one:
            found = only_loss_of(self.f, self.arguments, axes, Changes(chunks=count), self.is_step)
            if found is not None:
                return [found]
        return self._as_written(axes).traced(count).losses

    @property
    def gradient_bytes(self) -> int:
        """The bytes of the arguments and results of the largest loss, and of the cotangents of both."""

        def size(avals: Iterable[Any]) -> int:
            return sum(Value(a).device_bytes * (1 + jnp.issubdtype(a.dtype, jnp.inexact)) for a in avals)

        def closed(loss: Any) -> int:
            return sum(Value(jax.typeof(v)).device_bytes for v in loss.consts)

        return max(size([*loss.in_avals, *loss.out_avals]) + closed(loss) for loss in self._loss_jaxprs)

    @functools.cached_property
    def _head_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the results of the matmuls that the heads of the losses start at."""
        firsts = [first_of_head(program_with_head(loss)) for loss in self._loss_jaxprs]
        return [first.outvars[0].aval.shape for first in firsts if first is not None]

    @property
    def head_lengths(self) -> tuple[int, ...]:
        """The lengths of the axes of the matmuls that the heads of the losses start at, the longest first."""
        return tuple(sorted({length for shape in self._head_shapes for length in shape}, reverse=True))

    @property
    def head_sizes(self) -> frozenset[int]:
        """The numbers of elements of the results of these matmuls."""
        return frozenset(map(math.prod, self._head_shapes))

    # Where checkpoints can be

    @functools.cached_property
    def _traced_losses(self) -> list[CalledOnce]:
        return [CalledOnce(self.f, jaxpr, jaxpr.out_avals) for jaxpr in self._loss_jaxprs]

    @property
    def has_checkpoints(self) -> bool:
        """Whether a loss has checkpoints as written."""
        return any(any(checkpoints(loss.jaxpr)) for loss in self._traced_losses)

    @property
    def loop_places(self) -> tuple[str, ...]:
        """The values of `checkpoint` for loops that a loss has."""
        return ("loops", "inner loops")[
            : max(loops_deep(loss.without_checkpoints.jaxpr) for loss in self._traced_losses)
        ]

    @property
    def segments_are_layers(self) -> bool:
        """Whether the checkpoints of `"segments"` and of `"layers"` are around the same operations of each loss."""
        return all(
            blocks_of(loss, "segments", *loss.jaxpr.in_avals) == blocks_of(loss, "layers", *loss.jaxpr.in_avals)
            for loss in self._traced_losses
        )

    def _hidden_bytes(self, whole: list[Any], in_axes: tuple[Any, ...]) -> tuple[int, int]:
        """Return the bytes of the loss's values that loops over parts of the batch do not store, and of all values."""
        axes = self._leaf_axes(in_axes)
        count = divisors(FlatStep(self.f, self._flat_leaves, axes, self.name).batch_lengths[0])[0]
        parts = self._losses_of_a_part(axes, count, len(whole) == 1)
        chunked = list[ChunkedLoss]()
        for i, (one, part) in enumerate(zip(whole, parts, strict=True)):
            try:
                chunked.append(chunked_batch(one, part, count))
            except ReadsNoBatch:  # it stays as it is
                if i + 1 == len(whole) and not chunked:
                    raise
        return sum(each.hidden_bytes for each in chunked), sum(each.all_bytes for each in chunked)

    def _axes_candidates(self) -> list[tuple[Any, ...]]:
        """Return candidates for `in_axes`: all axes of one length in arguments other than parameters and state."""
        step = self.traced(Changes()).passes.step
        inputs = iter(step.program.inputs) if step is not None else itertools.repeat(None)
        data: list[list[bool]] = [
            [step is None or next(inputs) not in step.parameters | step.state for _ in leaves]
            for leaves in self._argument_leaves
        ]
        places = {
            (axis, size): None
            for leaves, are_data in zip(reversed(self._argument_leaves), reversed(data), strict=True)
            for leaf, is_data in zip(leaves, are_data, strict=True)
            for axis, size in enumerate(batch_shape(leaf)[:2])
            if is_data and divisors(size)
        }
        found = list[tuple[Any, ...]]()
        for axis, size in sorted(places, key=lambda place: place[0]):
            for others in (True, False):
                each = tuple(
                    _axes_in(tree, iter(are_data), axis, size, others)
                    for tree, are_data in zip(self._argument_trees, data, strict=True)
                )
                if self.arguments.kwargs:
                    named = each[-1]
                    each = *each[:-1], named if type(named) is dict else dict.fromkeys(self.arguments.kwargs, named)
                if each not in found and any(axis is not None for axis in jax.tree.leaves(each)):
                    found.append(each)
        return found[:_CANDIDATES]

    def _by_argument(self, in_axes: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Return candidates that divide one of the arguments that `in_axes` divides; none if it divides only one."""
        divided = [i for i, axes in enumerate(in_axes) if jax.tree.leaves(axes)]
        undivided: list[Any] = [*[None] * len(self.arguments.args), {}][: len(in_axes)]
        return [(*undivided[:i], in_axes[i], *undivided[i + 1 :]) for i in divided if len(divided) > 1]

    @functools.cached_property
    def _flat_leaves(self) -> list[Any]:
        return jax.tree.leaves((self.arguments.args, self.arguments.kwargs))

    @property
    def microbatch_axes(self) -> tuple[Any, ...]:
        """The axes that microbatches divide: those of `in_axes`, unless `find_other_axes` found others."""
        return self._other_axes or self.in_axes

    def find_other_axes(self) -> bool:
        """Look for axes along which the gradient can be computed in microbatches, and return whether there are any.

        This is for a step whose `in_axes` cannot be those of microbatches. In a recurrent network, for example, they
        may be those of time, along which most bytes of the loss can be divided into chunks.
        """
        for candidate in self._axes_candidates():
            if candidate != self.in_axes and self._divides_gradients(candidate):
                self._other_axes = candidate
                return True
        return False

    def _leaf_axes(self, in_axes: tuple[Any, ...]) -> list[int | None]:
        return leaf_axes(self.arguments.args, self.arguments.kwargs, in_axes)

    def _as_written(self, axes: Sequence[int | None]) -> TracedStep:
        """Return the step as written, with the batch axis of each leaf. It is traced once for the whole batch."""
        step = Rewritten(self.f, Changes(), self._known, self._rule).step(self.arguments)
        return step.traced(self._flat_leaves, axes)

    def _prove(self, axes: Sequence[int | None], count: int) -> Proof:
        """Return the proof about `count` microbatches, given the batch axis of each leaf."""
        key = tuple(axes), count
        if key not in self._proofs:
            self.operations += self.size
            self._proofs[key] = prove_or_explain(self._as_written(axes), count)
        return self._proofs[key]

    def batch_size(self, in_axes: tuple[Any, ...]) -> int:
        """Return the length of the batch axis; 0 if there is none."""
        axes = self._leaf_axes(in_axes)
        return next(iter(FlatStep(self.f, self._flat_leaves, axes, self.name).batch_lengths), 0)

    def why_no_microbatches(self, count: int) -> str:
        """Return a sentence on why the gradient cannot be computed in `count` microbatches; "" if it can."""
        if not self.is_step:
            return f"{self.name} is a loss: microbatches are a matter of the step around it."
        if self.batch_size(self.microbatch_axes) < 2:
            why = (
                f"no argument of {self.name} has an axis, such as that of the batch, along which its loss can be "
                "divided."
            )
            paths = argument_paths(self.f, self.arguments.args, self.arguments.kwargs)
            for path, leaf in zip(paths, self._flat_leaves, strict=True):
                if batch_shape(leaf) != jnp.shape(leaf):
                    kind = type_text(jax.typeof(leaf))
                    why += f" The last axis of `{path}`, {kind}, counts as that of a PRNG key (jax.random.PRNGKey)."
            if self._length_error:
                why += f" With another length of an axis, it raises {self._length_advice}"
            return f"{why} If {self.name} closes over its batch, make the batch an argument."
        return self._prove(self._leaf_axes(self.microbatch_axes), count).why

    @property
    def _length_advice(self) -> str:
        """The step's error for another length of an axis, and what the user can do about it."""
        advice = (
            "If its code states the batch size as a number, take this number from the shape of an argument instead."
        )
        return self._length_error if advice in self._length_error else f"{self._length_error} {advice}"

    @property
    def why_other_axes(self) -> str:
        """A sentence on the first axes that the search tried, if they are refused and `in_axes` are others; else ""."""
        if not self._refused_axes or not self.in_axes:
            return ""
        refused, chosen = (
            leaf_axes(self.arguments.args, self.arguments.kwargs, axes) for axes in (self._refused_axes, self.in_axes)
        )
        if any(one is not None and one == other for one, other in zip(refused, chosen, strict=True)):
            return ""
        return (
            f"The batch was divided along in_axes={self.in_axes}, because {self.name} refuses another length of the "
            f"axes in_axes={self._refused_axes}. It raises {self._length_advice}"
        )


def divisors(size: int) -> list[int]:
    """Return the numbers of parts to try for a length, from 2 on: the powers of 2, and the larger divisors."""
    found = [k for k in range(2, min(size, MOST_PARTS) + 1) if size % k == 0]
    powers = [k for k in found if k & (k - 1) == 0]
    return [k for k in found if k in powers or k > max(powers, default=0)]


def _axes_in(tree: Any, are_data: Iterator[bool], axis: int, size: int, others: bool) -> Any:
    """Return the entry of `in_axes` for an argument: `axis` for each leaf whose length along it is `size`.

    If `others` is True, other axes of that length count too. Return None if the entry cannot be written as axes in
    dictionaries, tuples, lists and fields. The axis of a field is that of all its arrays.
    """
    if (fields := fields_of(tree)) is not None:
        entry = _merge_equal_axes({name: _axes_in(fields[name], are_data, axis, size, others) for name in fields})
        if type(entry) is not dict:
            return entry
        # A batch axis is that of a whole field. Only some arrays of an optimizer's state have a length by chance.
        return {name: each for name, each in entry.items() if isinstance(each, int)} or None
    if type(tree) is dict:
        return _merge_equal_axes({key: _axes_in(tree[key], are_data, axis, size, others) for key in sorted(tree)})
    if type(tree) in (tuple, list):
        return _merge_equal_axes(type(tree)(_axes_in(each, are_data, axis, size, others) for each in tree))
    found = set[int | None]()
    for leaf in jax.tree.leaves(tree):
        shape = batch_shape(leaf)
        fitting = [i for i in dict.fromkeys((axis, *range(others * len(shape)))) if shape[i : i + 1] == (size,)]
        found.add(fitting[0] if next(are_data) and fitting else None)
    return found.pop() if len(found) == 1 else None


def _merge_equal_axes(axes: Any) -> Any:
    """Return a single axis instead of a container whose axes are all equal."""
    each = list(axes.values() if isinstance(axes, dict) else axes)
    same = each and all(one is None or isinstance(one, int) for one in each) and len(set(each)) == 1
    return (each[0] if each else None) if same or not each else axes


_CANDIDATES = 8
_FEW_REUSED = 0.001  # results of this share of the bytes that donation saves are not worth the loss of an argument
_CLEARLY = 1.2  # a later candidate must divide this many times the bytes of an earlier one to be preferred
MOST_PARTS = 64
