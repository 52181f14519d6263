"""`recompute_graph(f, *args)`: the recompute graph of a function, from one trace of it.

The trace is that of the function with checkpoints that save nothing. Its backward program recomputes all values that
any choice of names could require. A choice corresponds to a walk in the dependency graph: it starts at the values that
operations with a cotangent read, and ends at saved names and arguments. The operations on the way are recomputed.

Choosing which values of a chain to save is an old problem (Griewank and Walther, Algorithm 799: revolve, 2000; Chen et
al., Training deep nets with sublinear memory cost, 2016). Here, JAX fixes the schedule, in which a checkpoint
recomputes each of its operations at most once, and only the names are chosen.
"""

import dataclasses
import math
import numbers
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rematscope import jax_compat
from rematscope.choices.choice_graph import dependencies_of
from rematscope.choices.merge import parts_of
from rematscope.choices.recompute_graph import Node, RecomputeGraph
from rematscope.errors import PlanError
from rematscope.ir import roles
from rematscope.ir.cost import cost_of, operations, program_cost
from rematscope.ir.primitives import is_opaque
from rematscope.ir.program import Equation, Program, Value
from rematscope.jax_compat import Policy
from rematscope.seconds.devices import REFERENCE_DEVICE, Device
from rematscope.seconds.roofline import seconds_in
from rematscope.tracing.checkpoints import nothing, with_policies, with_policy
from rematscope.tracing.entry_points import with_own_options
from rematscope.tracing.trace import Trace, trace

# The price of a byte over links, in FLOPs: those of bfloat16 matmuls that the reference device computes while a ring
# over one axis of its links sends the byte. The price assumes that communication does not overlap with compute.
FLOPS_PER_LINK_BYTE = round(REFERENCE_DEVICE.matmul["bfloat16"] / REFERENCE_DEVICE.ring())

CostFunction = Callable[[Equation], float] | Device  # a device: the seconds that an equation takes on it


class _Work:
    """The cost of one run of an equation: FLOPs, transcendentals, and `FLOPS_PER_LINK_BYTE` per byte sent over a link.

    This is an object instead of a function so that `help` shows its name as a default value, not a memory address.
    """

    def __call__(self, equation: Equation) -> int:
        cost = cost_of(equation)
        return operations(cost) + FLOPS_PER_LINK_BYTE * cost.link_bytes

    def __repr__(self) -> str:
        return "work"

    def __reduce__(self) -> str:
        return "work"  # pickles as the object of this name


work = _Work()


class CostedCall(NamedTuple):
    """A call of a function, with the cost that recomputing one of its equations has."""

    f: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    cost: CostFunction = work

    def trace(self, variant: Callable[..., Any]) -> Trace:
        """Return the trace of a variant of the function on these arguments."""
        return trace(variant, *self.args, **self.kwargs)


@with_own_options
def recompute_graph(f: Callable[..., Any], *args: Any, cost: CostFunction = work, **kwargs: Any) -> RecomputeGraph:
    """Build the graph that gives the saved bytes and the recompute cost of any choice of checkpoint names.

    Args:
      f: a function that is differentiable in reverse mode, or a training step, whose loss the graph is then for. It is
        traced, not run. The choices replace the policies of its checkpoints. If it has no checkpoint, the graph is for
        one checkpoint around the whole function.
      *args, **kwargs: the arguments of `f`, as for `trace`.
      cost: the cost of recomputing an equation, as a function of an `Equation`. The default is FLOPs, plus 1 per
        element of a transcendental function, plus `FLOPS_PER_LINK_BYTE` per byte that a device sends over its links.
        This is the number of FLOPs that the reference device computes in the time of sending one byte. All branches
        of a `cond` count, because each of them may be taken. (`Trace.recompute_cost` counts the most expensive one.)

    Returns:
      The graph. `graph.evaluate(names)` returns the bytes that a choice of names saves and its recompute cost.

    Raises:
      TraceError: as for `trace`.
      PlanError: if a cost is not a number, if `f` differentiates a function that has a checkpoint, if a checkpoint of
        `f` is inside a kernel or contains a callback, or if `jax_remat3` is set in JAX 0.10.

    Example:
      >>> import jax.numpy as jnp
      >>> from jax.ad_checkpoint import checkpoint_name
      >>> from rematscope import recompute_graph
      >>> def f(x, w, u):
      ...     return jnp.sin(checkpoint_name(x @ w, "h") @ u)
      >>> graph = recompute_graph(f, jnp.ones((8, 64)), jnp.ones((64, 256)), jnp.ones((256, 64)))
      >>> graph.evaluate(()), graph.evaluate(("h",))  # (bytes saved, FLOPs and transcendentals recomputed)
      ((0, 524288), (8192, 262144))
    """
    if not callable(cost) and not isinstance(cost, Device):
        raise PlanError(f"cost={cost!r} is not a cost. Give a function of an Equation, or remove cost=.")
    if jax_compat.remat3() and not jax_compat.REMAT3_IS_PREDICTABLE:
        raise PlanError(
            f"jax_remat3 of JAX {jax.__version__} saves other values than that of later releases, so no choice can be "
            "predicted. Call jax.config.update('jax_remat3', False) first, or upgrade to JAX 0.11 or later."
        )
    own: list[Policy | None] = []

    def saving_nothing(policy: Policy | None) -> Policy:
        own.append(policy)
        return nothing

    call = CostedCall(f, args, kwargs, cost)
    with jax_compat.default_remat():  # under jax_remat3, names that are not saved disappear from the trace
        passes = call.trace(with_policies(f, saving_nothing))
    policies = [policy for policy in own if policy not in (None, jax.checkpoint_policies.nothing_saveable)]
    graph = graph_of(passes, cost)
    if jax_compat.remat3():
        graph = dataclasses.replace(_without_names_saved_differently(graph, call), remat3=True)
    return dataclasses.replace(graph, policies=tuple(dict.fromkeys(policies)))


SAVED_DIFFERENTLY = "under jax_remat3, JAX saves it differently than by default"


def _without_names_saved_differently(graph: RecomputeGraph, call: CostedCall) -> RecomputeGraph:
    """Bar the names for which traces under `jax_remat3` differ from the prediction of `graph`.

    The graph comes from a trace in JAX's default rematerialization, where a name stays visible if it is not saved. In
    JAX 0.12.0.1 nearly all choices are the same under `jax_remat3`. The exceptions: a name in the forward rule of a
    `custom_vjp` is not saved (JAX PR 40309 restores it), and a value that does not change in a loop is saved once per
    iteration.

    Raises:
      PlanError: if traces differ from the prediction for other reasons than single names.
    """
    if is_predicted(graph, call):
        return graph
    barred = {name: SAVED_DIFFERENTLY for name in graph.names if not is_predicted(graph, call, names=[name])}
    without = graph_of(graph.trace, call.cost, barred=barred)
    if not barred or not is_predicted(without, call):
        raise PlanError(
            f"under jax_remat3, {graph.trace.function} saves or recomputes different values than by default for every "
            "choice of names, so no choice can be predicted. Call jax.config.update('jax_remat3', False) first."
        )
    return without


def is_predicted(
    graph: RecomputeGraph, call: CostedCall, names: Sequence[str] | None = None, policy: Policy | None = None
) -> bool:
    """Return whether a trace with a policy has the saved bytes and the recompute that `graph` predicts for `names`.

    The policy saves `names` only, by default all names of the graph, if none is given.
    """
    names = graph.names if names is None else names
    planned = with_policy(call.f, policy or jax.checkpoint_policies.save_only_these_names(*names))
    passes = call.trace(planned)
    saved, recompute = graph.evaluate(names)
    if passes.device_bytes_by_kind().get("computed", 0) != saved:
        return False
    again = recompute_cost_of(with_default_roles(passes, call, planned), call.cost)
    return math.isclose(again, recompute, rel_tol=1e-9)


def with_default_roles(passes: Trace, call: CostedCall, variant: Callable[..., Any]) -> Trace:
    """Return the default trace of a variant of `call.f` if it saves and computes the same as `passes`, else `passes`.

    Under remat3 the forward pass computes some results in another way than the recompute, such as `cumprod`. The
    operations of the recompute up to there then count as deferred, and as recomputed by default.
    """
    if not jax_compat.remat3():
        return passes
    with jax_compat.default_remat():
        default = call.trace(variant)
    same_bytes = default.device_bytes_by_kind() == passes.device_bytes_by_kind()
    return default if same_bytes and program_cost(default.backward) == program_cost(passes.backward) else passes


def graph_of(
    passes: Trace,
    cost: CostFunction = work,
    saved: Collection[Equation] = (),
    barred: Mapping[str, str] | None = None,
) -> RecomputeGraph:
    """Return the recompute graph of a trace.

    Args:
      passes: both programs. To choose among all names, trace a function whose checkpoints save nothing. Otherwise the
        values that its policies save count as saved, and only the other names can be chosen.
      cost: the cost of recomputing an equation once, a number that is not negative; or a device, for the seconds that
        the equation takes there.
      saved: equations of the backward pass whose results a policy saves, in addition to the chosen names.
      barred: names that no choice may save, and why, in addition to names that the program itself rules out.

    Raises:
      PlanError: if `cost` returns anything else, or a checkpoint is in a place that the trace does not look into.
    """
    nodes = _nodes_of(passes, cost, saved)
    roots = nodes.reading(passes.backward.outputs)
    roots += [node for node in nodes.all if node.equation and jax_compat.effects_of(node.equation.eqn)]
    nodes.barred.update(barred or {})
    for node in nodes.all:
        if node.name in nodes.barred:
            node.name, node.array, node.nbytes = None, None, 0
    _multiply_by_trip_counts(nodes.all)
    for node in nodes.by_policy:
        node.reads = []  # it is saved

    reached = dependencies_of(roots, ())
    names = {node.name for node in reached if node.name is not None}
    needed = dependencies_of(roots, names)
    # JAX also saves some values that have no reader.
    needed |= {node for node in nodes.all if node.kept and node not in reached} - set(nodes.by_policy)
    return RecomputeGraph(
        trace=passes,
        nodes=tuple(nodes.all),
        roots=tuple(roots),
        barred=nodes.barred,
        uncounted=frozenset[str]().union(*(node.uncounted for node in reached)),
        device=cost.name if isinstance(cost, Device) else "",
        weighing=_weighing_text(passes, cost),
        names=tuple(dict.fromkeys(node.name for node in nodes.all if node.name is not None and node.name in names)),
        parts=parts_of([node for node in nodes.all if node in reached], needed),
        least_bytes=sum({node.array: node.nbytes for node in needed if node.kept}.values()),
        least_cost=sum(node.cost for node in nodes.all if node in needed),
    )


def recompute_cost_of(passes: Trace, cost: CostFunction = work) -> float:
    """Return the recompute cost of a traced backward program; see `graph_of`."""
    return sum(node.cost for node in _nodes_of(passes, cost).all)


def _nodes_of(passes: Trace, cost: CostFunction, saved: Collection[Equation] = ()) -> "_Nodes":
    each = seconds_in(passes, cost) if isinstance(cost, Device) else cost
    nodes = _Nodes(passes, each, work if isinstance(cost, Device) else each, saved)
    nodes.add_residuals()
    nodes.add_program(passes.backward, passes.times, ())
    return nodes


@dataclasses.dataclass
class _Nodes:
    """Build the nodes of a backward program.

    Attributes:
      trace, saved: as for `graph_of`.
      cost: the cost of one run of an equation.
      known: the user's cost function, which may know operations that `work` does not; else `work`.
      all: the nodes, in program order.
      by_policy: the saved results of the equations in `saved`.
      of_value: the node of each value, except for arguments, constants and cotangents.
      barred: names that no choice may save, and why.
    """

    trace: Trace
    cost: Callable[[Equation], float]
    known: Callable[[Equation], float]
    saved: Collection[Equation]
    all: list[Node] = dataclasses.field(default_factory=list)
    by_policy: list[Node] = dataclasses.field(default_factory=list)
    _came: Counter[Value] = dataclasses.field(default_factory=Counter)
    of_value: dict[Value, Node] = dataclasses.field(default_factory=dict)
    barred: dict[str, str] = dataclasses.field(default_factory=dict)

    @cached_property
    def _device_arrays(self) -> dict[Value, Value]:
        """Map the results of a forward `shard_map` to the results on a device, since both are saved as one array."""
        mapped = (equation for equation in self.trace.forward.equations if equation.primitive == "shard_map")
        return {
            whole: part
            for equation in mapped
            for whole, part in zip(equation.outputs, equation.bodies[0].outputs, strict=True)
        }

    def _saved_array(self, value: Value) -> Value:
        """Return the array that is saved for a value that the backward pass recomputes."""
        array = self.trace.forward_value_of.get(value, value)
        return self._device_arrays.get(array, array)

    def _one_of_those(self, array: Value) -> Value:
        """Return one of several equal values, which are saved separately, and recomputed as often as computed."""
        alike = self.trace.equal_values.get(array, [array])
        self._came[array] += 1
        return alike[(self._came[array] - 1) % len(alike)]

    def reading(self, values: Iterable[Value]) -> list[Node]:
        """Return the nodes of values without duplicates. Arguments, constants and cotangents have no nodes."""
        return list(dict.fromkeys(self.of_value[v] for v in values if v in self.of_value))

    def add_residuals(self) -> None:
        for residual in self.trace.residuals:
            if residual.value not in self.of_value:
                computed = residual.kind == "computed"
                array = self._device_arrays.get(residual.value, residual.value)
                on_device = computed and residual.memory == "device"  # the budget does not count bytes in host memory
                node = Node(array=array, nbytes=residual.device_bytes if on_device else 0, kept=computed)
                self._add_node(node, [residual.value])

    def add_program(self, program: Program, times: int, around: tuple[Equation, ...]) -> None:
        """Add the operations of a program that runs `times` times; `around` are the loops and branches around it."""
        for equation in program.equations:
            match equation.primitive:
                case "optimization_barrier":
                    pass
                case "scan":
                    self._add_scan(equation, times, around)
                case "cond":
                    self._add_cond(equation, times, around)
                case "shard_map":
                    self._add_shard_map(equation, times, around)
                case _:
                    self._add_operation(equation, times, around)

    def _add_node(self, node: Node, values: Iterable[Value]) -> Node:
        self.all.append(node)
        self.of_value.update(dict.fromkeys(values, node))
        return node

    def _add_operation(self, equation: Equation, times: int, around: tuple[Equation, ...]) -> None:
        # A checkpoint in such an operation cannot be seen.
        if equation.primitive in self.trace.opaque_primitives and _has_names(equation):
            raise PlanError(
                f"{self.trace.function} has a checkpoint around or inside {equation.primitive}, and its "
                "recompute cannot be analyzed from outside. Plan the function inside it on its own."
            )
        cost = _recompute_cost(equation, self.cost) * times
        node = Node(self.reading(equation.inputs), cost=cost, equation=equation, loops=frozenset(around))
        node.uncounted = _uncounted_primitives(equation, self.known)
        if equation.primitive == "name":
            (value,) = equation.outputs
            node.name = equation.params["name"]
            node.array = self._saved_array(value)
            node.nbytes = value.device_bytes if value.memory == "device" else 0
            if reason := _why_barred(equation, around):
                self.barred.setdefault(node.name, reason)
        self._add_node(node, equation.outputs)
        for value in equation.outputs if equation in self.saved else ():
            array = node.array or self._one_of_those(self._saved_array(value))
            kept = Node([node], array=array, kept=True, loops=node.loops)
            kept.nbytes = value.device_bytes
            self.by_policy.append(self._add_node(kept, [value]))

    def _add_scan(self, equation: Equation, times: int, around: tuple[Equation, ...]) -> None:
        """Add the operations of a loop's body as nodes; a carry depends on its value in the previous iteration."""
        (body,) = equation.bodies
        inside = (*around, equation)
        handed = [
            self._add_node(
                Node(self.reading([array]), loops=frozenset(inside), depends_on_loops=frozenset([equation])), [value]
            )
            for value, array in zip(body.inputs, [*equation.initial, *equation.stacked_inputs], strict=True)
        ]
        self.add_program(body, times * equation.length, inside)
        carried = handed[: equation.carries]
        for node, out in zip(carried, body.outputs, strict=False):
            node.reads = list(dict.fromkeys([*node.reads, *self.reading([out])]))
        # The last value of a carry depends on its initial value, even if the iterations do not read it.
        lasts = [*body.inputs[: equation.carries], *body.outputs[equation.carries :]]
        for value, last in zip(equation.outputs, lasts, strict=True):
            self._add_node(Node(self.reading([last]), loops=frozenset(around)), [value])

    def _add_shard_map(self, equation: Equation, times: int, around: tuple[Equation, ...]) -> None:
        """Add the operations of one device as nodes; the results of the device depend on each other's whole arrays."""
        (body,) = equation.bodies
        for array, part in zip(equation.inputs, body.inputs, strict=True):
            self._add_node(Node(self.reading([array]), loops=frozenset(around)), [part])
        self.add_program(body, times, around)
        for value, part in zip(equation.outputs, body.outputs, strict=True):
            self._add_node(Node(self.reading([part]), loops=frozenset(around)), [value])

    def _add_cond(self, equation: Equation, times: int, around: tuple[Equation, ...]) -> None:
        """Add the operations of all branches as nodes, since the program does not say which branch is taken."""
        for body in equation.bodies:
            self.add_program(body, times, (*around, equation))
        if jax_compat.effects_of(equation.eqn):  # an effect in a branch depends on the predicate
            self._add_node(Node(self.reading(equation.inputs[:1]), equation=equation, loops=frozenset(around)), [])
        for value, *results in zip(equation.outputs, *(body.outputs for body in equation.bodies), strict=True):
            node = Node(self.reading([equation.inputs[0], *results]), loops=frozenset(around))
            self._add_node(node, [value])


def _weighing_text(passes: Trace, cost: CostFunction) -> str:
    """Return the assumptions behind the costs, as a clause."""
    if isinstance(cost, Device):
        return f", on {cost.name}"
    sends = passes.axes and passes.cost.link_bytes  # on one device nothing is sent, and costs need not be summed
    links = f", each link byte weighed as {FLOPS_PER_LINK_BYTE:,} operations" if sends else ""
    return (links + ", the sharding of some operations is an estimate" * passes.has_auto_sharded_work) * (cost is work)


def _recompute_cost(equation: Equation, cost: Callable[[Equation], float]) -> float:
    """Return the cost of recomputing an equation; for a while loop, including its body."""
    return sum(times * checked_cost(cost, e) for e, times in equation.walk() if e.role == roles.RECOMPUTED)


def checked_cost(cost: Callable[[Equation], Any], equation: Equation) -> float:
    """Return the cost that a user's cost function gives for an equation.

    Raises:
      PlanError: if the cost is not a number, or is negative.
    """
    returned = cost(equation)
    try:
        number = int(returned) if isinstance(returned, numbers.Integral) else float(returned)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise PlanError(
            f"cost= returned {returned!r} for {equation.primitive}. Return a number for each equation, 0 or more."
        )
    return number


def _uncounted_primitives(equation: Equation, cost: Callable[[Equation], float]) -> frozenset[str]:
    """Return the primitives of unknown cost that an equation recomputes.

    A cost function of the user knows an operation if it returns more than 0 for it, which `cost_of` does not.
    """
    if equation.bodies:
        inside = [inner for body in equation.bodies for inner in body.equations]
        found = frozenset[str]().union(*(_uncounted_primitives(inner, cost) for inner in inside))
        recomputes = any(e.role == roles.RECOMPUTED for e, _ in equation.walk())
        return found | {"while"} if not equation.counted and recomputes else found
    if equation.role == roles.DEFERRED and is_opaque(equation.primitive):
        return frozenset({equation.primitive})  # it is unknown whether the forward pass computed any of it
    uncounted = cost_of(equation).uncounted if equation.role == roles.RECOMPUTED else frozenset[str]()
    return frozenset() if uncounted and cost is not work and cost(equation) else uncounted


def operations_rerun(passes: Trace) -> list[Equation]:
    """Return the operations of the backward pass that give a different result each time they run, and that the forward
    pass runs too; see `jax_compat.STATEFUL`."""
    forward, backward = (
        [equation for equation, _ in program.walk() if equation.primitive in jax_compat.STATEFUL]
        for program in (passes.forward, passes.backward)
    )
    lines = {(equation.primitive, equation.source) for equation in forward}
    return [equation for equation in backward if (equation.primitive, equation.source) in lines]


def _multiply_by_trip_counts(nodes: Collection[Node]) -> None:
    """Multiply the bytes of a name in a loop by its trip count, unless the value is the same in every iteration.

    JAX moves values that do not change out of a loop before it stacks the saved ones.
    """
    changes = {node: node.depends_on_loops for node in nodes}
    before = None
    while changes != before:  # repeated, because carries depend on the previous iteration
        before = dict(changes)
        for node in nodes:
            changes[node] = node.depends_on_loops.union(*(changes[n] for n in node.reads)) & node.loops
    for node in nodes:
        if node.array is not None and node.reads:
            node.nbytes *= math.prod(loop.length for loop in changes[node])


def _why_barred(named: Equation, around: tuple[Equation, ...]) -> str | None:
    """Return why a value cannot be saved by its name although the backward pass recomputes it, or None."""
    if any(equation.primitive == "cond" for equation in around):
        return "is inside a branch, and the residuals of branches share memory"
    if any(jax_compat.is_checkpoint(eqn) and jax_compat.policy_of(eqn) is not nothing for eqn in named.calls):
        return "is inside a checkpoint of a custom rule, which has its own policy"
    if any(map(jax_compat.is_custom_rule, named.calls)):
        return "is inside a function with its own derivative rule, which a checkpoint does not analyze"
    if any(jnp.issubdtype(value.dtype, jnp.complexfloating) for value in named.outputs):
        return "names complex values, which JAX cannot save by name"
    return None


def _has_names(equation: Equation) -> bool:
    """Return whether the body of an operation that the trace does not look into contains checkpoint names."""
    inside = map(jax_compat.walk_equations, jax_compat.jaxprs_in_params(equation.params))
    return any(jax_compat.checkpoint_name(eqn) is not None for body in inside for eqn, _ in body)
