"""Which names of a function spare anything, why the others do not, and which values deserve one."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator

from jax.extend import source_info_util
from jax.extend.core import JaxprEqn

from rematscope import _jax, roles
from rematscope.checkpoints import nothing, with_policy
from rematscope.cost import cost_of
from rematscope.program import Equation, Inliner, Program, Value, type_text
from rematscope.recompute import Node, RecomputeGraph
from rematscope.source import Source
from rematscope.subject import Subject, everything, source_of, where
from rematscope.units import amount_text, bytes_text

PRODUCTS = frozenset("conv_general_dilated dot_general ragged_dot_general scaled_matmul_wrapper".split())
# Operations whose derivative uses their own result.
_OWN_RESULT = frozenset("cbrt cumprod erf_inv exp exp2 logistic rsqrt sqrt tan tanh".split())
# What only moves data: a value before it and after it deserve the same name.
_MOVES = frozenset(
    "broadcast_in_dim convert_element_type copy expand_dims name reshape rev squeeze stop_gradient transpose".split()
)
# A name that spares less than this part of what computing its value takes is in the wrong place.
_WORTH_WHILE = 0.1
_PLACE = "rematscope: place "


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something in a function that does not do what it looks like.

    Attributes:
      kind: what it is about:
        of a name, `"discarded"`, `"custom rule"`, `"outside"` (no checkpoint is around it), `"barred"`, `"argument"`,
        `"not needed"` (the backward pass reads it nowhere), `"own result"` (named after an operation whose derivative
        uses its own result), `"too late"` (what it is made from is computed again anyway), `"used unnamed"`, `"free"`;
        of a policy, `"unknown name"`, `"ignored names"`, `"saves nothing"`, `"overridden"`;
        of a checkpoint, `"nested"`, `"undone"` (by the compiler), `"whole net"`.
      text: the cause and the next step.
      source: the line that it is about, or None.
      name: the `checkpoint_name` that it is about, or None.
    """

    kind: str
    text: str
    source: Source | None = None
    name: str | None = None


@dataclasses.dataclass(frozen=True)
class Place:
    """A value that deserves a name.

    Attributes:
      what: which value of its line it is.
      source: the line that computes it.
      type: its dtype and shape, `f32[8,64]`, in each iteration of a loop.
      nbytes: bytes that saving it adds, in all layers that the line is run for.
      spares: FLOPs and transcendentals that are not computed again if it is saved beside the names that help.
    """

    what: str
    source: Source | None
    type: str
    nbytes: int = 0
    spares: int = 0

    def __str__(self):
        return f"{self.what} on {where(self.source)} ({self.type})"


class Names:
    """What the names of a function do.

    Attributes:
      graph: what its backward pass computes again, where all values that may deserve a name have one.
      places: values that do, those first that spare most per byte.
    """

    def __init__(self, subject: Subject):
        self._subject = subject
        inputs = [Value(v.aval) for v in _jax.body_of(subject.jaxpr)[0].invars]
        self._values = _Values(Inliner().program(subject.jaxpr, inputs))
        candidates = self._find_candidates()
        by_eqn = {id(eqn): name for name, (_, eqns, _) in candidates.items() for eqn in eqns}

        def change(eqn, old):
            return _jax.with_name(eqn, by_eqn[id(old)]) if id(old) in by_eqn else [eqn]

        self.graph = RecomputeGraph(subject.trace(with_policy(subject.changed(change), nothing)))
        given = frozenset(self.graph.names) - candidates.keys()
        self._reached = self.graph.walk(frozenset())
        self._needed = self.graph.walk(given)
        self._nodes: dict[tuple[str, str], list[Node]] = {}
        for node in self.graph.nodes:
            if node.name in given and node in self._reached:
                self._nodes.setdefault((node.name, str(node.equation.source)), []).append(node)
        self._named: dict[tuple[str, str], list[Equation]] = {}
        for equation in self._values.equations:
            if equation.primitive == "name":
                self._named.setdefault((equation.params["name"], str(equation.source)), []).append(equation)
        self._helping = {key for key, nodes in self._nodes.items() if any(map(self._helps, nodes))}
        self._saved = {name for name, _ in self._helping}
        worth = self._worth(candidates)
        self._places = {equation: place for place, equations in worth for equation in equations}
        self.places = sorted((place for place, _ in worth), key=lambda p: p.spares / max(p.nbytes, 1), reverse=True)

    # Places

    def _find_candidates(self) -> dict[str, tuple[Place, list[JaxprEqn], list[Equation]]]:
        """A name for each place that may deserve one: the place, where a name would go in the jaxpr, what makes it."""
        values = self._values
        found: dict[Equation | None, tuple[str, Equation]] = {}
        for equation in values.equations:
            if equation.primitive in PRODUCTS:
                found[equation] = "the result of a matrix product", equation
                for value in equation.inputs:
                    found.setdefault(values.origin(value), ("what goes into a matrix product", equation))
            elif equation.primitive == "exp" and (value := values.softmax_input(equation)) is not None:
                found.setdefault(values.origin(value), ("what goes into a softmax", equation))
        if not found:
            costly = [e for e in values.equations if not e.bodies and (c := cost_of(e)).flops + c.transcendentals]
            found = {e: (f"the result of {e.primitive}", e) for e in costly}
        places: dict[tuple, tuple[Place, list, list]] = {}
        for equation, (what, reader) in found.items():
            if equation is None or (eqn := _nameable(equation, reader)) is None:
                continue
            place = Place(what, equation.source, type_text(equation.outputs[0]))
            alike = source_info_util.summarize(equation.eqn.source_info), *map(type_text, equation.inputs)
            _, eqns, equations = places.setdefault((place, equation.primitive, alike), (place, [], []))
            eqns.append(eqn)
            equations.append(equation)
        return {f"{_PLACE}{i}": place for i, place in enumerate(places.values())}

    def _worth(self, candidates) -> list[tuple[Place, list[Equation]]]:
        """The places that spare anything beside the names that help, and what computes them."""
        found = []
        nbytes, cost = self.graph.evaluate(self._saved)
        for name in self.graph.names:
            if name in candidates:
                place, _, equations = candidates[name]
                then = self.graph.evaluate({*self._saved, name})
                if then[1] < cost:
                    spares = cost - then[1]
                    found.append((dataclasses.replace(place, nbytes=then[0] - nbytes, spares=spares), equations))
        return found

    # What is wrong with names

    def findings(self) -> Iterator[Finding]:
        sources = {}
        for eqn, around in everything(self._subject.jaxpr):
            if (name := _jax.checkpoint_name(eqn)) is not None:
                source = source_of(eqn, around)
                sources.setdefault((name, str(source)), source)
        for key, source in sources.items():
            if key not in self._helping:
                name = key[0]
                kind, text = self._fault(key)
                yield Finding(kind, f"{name!r} on {where(source)} {text}", source, name)

    def _fault(self, key: tuple[str, str]) -> tuple[str, str]:
        """Why a name does not help, and what to do."""
        name, equations = key[0], self._named.get(key)
        if not equations:
            return "discarded", (
                "does nothing: nothing that is returned is computed from what checkpoint_name returned. Go on with "
                f"that: h = checkpoint_name(h, {name!r})."
            )
        calls = equations[0].calls
        if any(map(_jax.is_custom_rule, calls)):
            return "custom rule", (
                "stands in a function with a derivative rule of its own, and the backward pass follows the rule alone. "
                "Put the name into the rule's forward function, or outside."
            )
        if self._subject.checkpoints and not any(map(_jax.is_checkpoint, calls)):
            return "outside", "stands in no checkpoint, so no policy is asked about it. Put a checkpoint around it."
        if name in self.graph.barred and key not in self._nodes:
            return "barred", f"{self.graph.barred[name]}. Name a value outside."
        if (given := self._values.given(equations[0])) is not None:
            return "argument", f"is the name of {given}, which is kept anyway: saving it keeps it twice. Drop the name."
        if key not in self._nodes:
            return "not needed", f"{self._not_needed(equations)} {self._instead(equations)}"
        return self._idle(equations, self._nodes[key])

    def _not_needed(self, equations: list[Equation]) -> str:
        uses = self._values.uses(equations)
        if not uses:
            return "is not needed by the backward pass: it is returned, and nothing else is done with it."
        return f"is not needed by the backward pass: the derivative of {_listed(uses)} does not contain its value."

    def _idle(self, equations: list[Equation], nodes: list[Node]) -> tuple[str, str]:
        spared, again, ends = max(map(self._spared, nodes), key=lambda found: found[0])
        if not again:
            return "free", "costs nothing to compute again: only data is moved. Drop the name."
        part = amount_text(spared) if spared else "none"
        size = bytes_text(sum(node.nbytes for node in nodes))
        saving = f"spares {part} of the {amount_text(spared + again)} operations that computing it takes, for {size}"
        last = max(ends, key=lambda node: (node.cost, node.equation.primitive in _OWN_RESULT)).equation
        made = f"{last.primitive} on {where(last.source)}"
        if last.primitive in _OWN_RESULT:
            kind, why = "own result", f"the derivative of {made} uses its own result, the value before the name"
        elif uses := self._values.unnamed_uses(equations):
            return (
                "used unnamed",
                f"{saving}: {_listed(uses)} has the same value without the name. Give it the named one.",
            )
        else:
            kind, why = (
                "too late",
                f"{made} is computed again all the same: the derivative on {self._reader(ends)} needs it",
            )
        return kind, f"{saving}: {why}. {self._instead(equations)}"

    def _helps(self, node: Node) -> bool:
        spared, again, _ = self._spared(node)
        return spared > 0 and spared >= _WORTH_WHILE * (spared + again)

    def _spared(self, node: Node) -> tuple[int, int, list[Node]]:
        """What saving a named value spares, what its computation takes all the same, and where that part ends."""
        spared = _upstream(node.reads, lambda read: read not in self._needed)
        ends = [read for here in [node, *spared] for read in here.reads if read in self._needed]
        again = set(
            _upstream(ends, lambda read: not (read.name and (read.name, str(read.equation.source)) in self._nodes))
        )
        free = _upstream(ends, lambda read: read in again and not read.cost)
        ends = [
            read for read in [*ends, *(read for here in free for read in here.reads)] if read in again and read.cost
        ]
        return sum(read.cost for read in spared), sum(read.cost for read in again), ends

    def _reader(self, nodes: list[Node]) -> str:
        """The line whose derivative needs the costliest of some values that are computed again."""
        reached = {max(nodes, key=lambda node: node.cost)}
        for node in self.graph.nodes:
            if node in self._needed and node.equation and not reached.isdisjoint(node.reads):
                if node.equation.role != roles.RECOMPUTED:
                    return where(node.equation.source)
                reached.add(node)
        return where(None)

    def _instead(self, equations: list[Equation]) -> str:
        """The next step, for a name in the wrong place: the nearest place before it that is worth one."""
        own = {self._values.origin(e.outputs[0]) for e in equations}
        for equation in self._values.before(equations):
            if equation in self._places and equation not in own:
                place = self._places[equation]
                return f"Name {place} instead: that spares {amount_text(place.spares)} for {bytes_text(place.nbytes)}."
            if equation.primitive == "name" and (equation.params["name"], str(equation.source)) in self._helping:
                return f"Drop it: {equation.params['name']!r}, from which it is computed, has a name that helps."
        return "Drop the name."


def _nameable(equation: Equation, reader: Equation) -> JaxprEqn | None:
    """Where in the jaxpr the result of an operation can be given a name; None if there is no such line."""
    rules = [eqn for eqn in equation.calls if _jax.is_custom_rule(eqn)]
    if not rules:
        return equation.eqn if len(equation.outputs) == len(equation.eqn.outvars) == 1 else None
    # Names in a custom rule do nothing: what it returns must be named outside.
    outer = rules[-1]
    return outer if len(outer.outvars) == 1 and not any(eqn is outer for eqn in reader.calls) else None


def _upstream(nodes: Iterable[Node], enters: Callable[[Node], bool]) -> list[Node]:
    """The nodes and all that they read, as far as `enters` lets."""
    found: dict[Node, None] = {}
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if node not in found and enters(node):
            found[node] = None
            pending += node.reads
    return list(found)


def _listed(equations: list[Equation]) -> str:
    """`add on model.py:7, mul on model.py:8 and 3 more`."""
    texts = list(dict.fromkeys(f"{e.primitive} on {where(e.source)}" for e in equations))
    return ", ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")


class _Values:
    """Where the values of a program come from and what reads them, through loops and branches.

    Attributes:
      equations: all of the program and its bodies, barriers left out.
    """

    def __init__(self, program: Program):
        self.equations: list[Equation] = []
        self._given = dict.fromkeys(program.inputs, "an argument") | dict.fromkeys(program.constants, "a constant")
        self._maker: dict[Value, Equation] = {}
        self._readers: dict[Value, list[Equation]] = {}
        self._loop: dict[Value, Equation] = {}  # of what a loop hands to its body
        self._from: dict[Value, list[Value]] = {}  # the same value on the other side of a body's border
        self._to: dict[Value, list[Value]] = {}
        self._visit(program)

    def _visit(self, program: Program) -> None:
        for equation in program.equations:
            if equation.primitive == "optimization_barrier":
                continue
            self.equations.append(equation)
            self._maker.update(dict.fromkeys(equation.outputs, equation))
            for body in equation.bodies:
                self._visit(body)
                self._loop.update(dict.fromkeys(body.inputs, equation))
            if not equation.bodies:
                for value in equation.inputs:
                    self._readers.setdefault(value, []).append(equation)
                continue
            returning = equation.bodies if equation.primitive == "cond" else equation.bodies[-1:]
            pairs = [pair for body in returning for pair in zip(body.outputs, equation.outputs, strict=True)]
            for body in equation.bodies:
                pairs += zip(returning[-1].outputs[: equation.carries], body.inputs, strict=False)
                pairs += zip(equation.initial, body.inputs, strict=False)
                pairs += zip(equation.stacked_inputs, body.inputs[equation.carries :], strict=False)
            for source, target in pairs:
                self._from.setdefault(target, []).append(source)
                self._to.setdefault(source, []).append(target)

    def makers(self, value: Value) -> list[Equation]:
        """The operations that a value may come from: several where branches or iterations meet."""
        return [self._maker[v] for v in _closure([value], self._from) if v in self._maker and v not in self._from]

    def origin(self, value: Value) -> Equation | None:
        """The operation that computed a value, before names and moves of data; None if it was given."""
        while makers := self.makers(value):
            if makers[0].primitive not in _MOVES:
                return makers[0]
            value = makers[0].inputs[0]
        return None

    def softmax_input(self, exp: Equation) -> Value | None:
        """What the maximum was taken of and taken from before `exp`, or None."""
        difference = self.origin(exp.inputs[0])
        if difference is None or difference.primitive != "sub":
            return None
        value, most = difference.inputs
        maximum = self.origin(most)
        if maximum is not None and maximum.primitive == "max":  # with −∞, as jnp.max does
            maximum = next((e for v in maximum.inputs if (e := self.origin(v)) is not None), None)
        if maximum is None or maximum.primitive != "reduce_max":
            return None
        return value if maximum.inputs[0] is value or self.origin(maximum.inputs[0]) is self.origin(value) else None

    def given(self, named: Equation) -> str | None:
        """What a name is put on, if that is no result of the function or of the checkpoint that the name is in."""
        value = named.inputs[0]
        while value in self._maker and self._maker[value].primitive == "name":
            value = self._maker[value].inputs[0]
        if value in self._given:
            return self._given[value]
        checkpoint = next((eqn for eqn in named.calls if _jax.is_checkpoint(eqn)), None)
        around = self._maker.get(value) or self._loop.get(value)
        if checkpoint is None or around is None or any(eqn is checkpoint for eqn in around.calls):
            return None
        return f"what goes into the checkpoint on {where(source_of(checkpoint, ()))}"

    def uses(self, named: list[Equation]) -> list[Equation]:
        """What is done with named values."""
        found = []
        pending = [value for equation in named for value in equation.outputs]
        seen = set()
        while pending:
            for value in _closure([pending.pop()], self._to):
                for reader in self._readers.get(value, ()):
                    if reader.primitive != "name":
                        found.append(reader)
                    elif reader not in seen:
                        seen.add(reader)
                        pending += reader.outputs
        return found

    def unnamed_uses(self, named: list[Equation]) -> list[Equation]:
        """What else reads what the names were put on."""
        return [reader for e in named for reader in self._readers.get(e.inputs[0], ()) if reader.primitive != "name"]

    def before(self, equations: list[Equation]) -> Iterator[Equation]:
        """All that some operations are computed from, the nearest first."""
        seen = set()
        layer = equations
        while layer:
            makers = [maker for e in layer for v in e.inputs for maker in self.makers(v)]
            layer = [maker for maker in dict.fromkeys(makers) if maker not in seen]
            seen.update(layer)
            yield from layer


def _closure(values: Iterable[Value], step: dict[Value, list[Value]]) -> list[Value]:
    found: dict[Value, None] = {}
    pending = list(values)
    while pending:
        value = pending.pop(0)
        if value not in found:
            found[value] = None
            pending += step.get(value, ())
    return list(found)
