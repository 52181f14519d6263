"""The names, source lines and policy that express the choice of `auto` in the code of a model."""

import dataclasses
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax

from rematscope.choices.build import CostFunction, work
from rematscope.errors import PlanError
from rematscope.ir.cost import operations
from rematscope.ir.program import Value, type_text
from rematscope.ir.source import Source, each_of_common_path
from rematscope.render.parts import Paragraph, TextTable
from rematscope.render.units import bytes_text, count_text
from rematscope.render.view import View
from rematscope.scheduling.linearize import Linearized
from rematscope.scheduling.named import Nameable, Spot
from rematscope.scheduling.peak_program import PeakProgram
from rematscope.scheduling.per_call import GradientCall
from rematscope.scheduling.schedule import Schedule, schedule
from rematscope.tracing.trace import Trace


@dataclasses.dataclass(frozen=True)
class Name:
    """An expression on a source line that should get a checkpoint name, or several.

    Attributes:
      names: the names: one for all saved values of the expression, or one for each.
      write: the code to write instead of the expression.
      source: the source line.
      module: the modules that run the line, from JAX's name stack; else "".
      types: the distinct dtypes and shapes of the saved values, such as `f32[8,64]`; in loops, those of one iteration.
      nbytes: the saved bytes.
      which: the indices of the saved values among those of the expression, in program order; () for all.
      values: the number of values of the expression.
    """

    names: tuple[str, ...]
    write: str
    source: Source
    module: str
    types: tuple[str, ...]
    nbytes: int
    which: tuple[int, ...]
    values: int


class SuggestedNames(View):
    """The names that express a plan in the code of a model.

    It is displayed as text in a terminal and as HTML in a notebook.

    Attributes:
      names: the code to write for each name, in program order.
      policy: the policy for a `jax.checkpoint` around the whole function with these names.
      named: the function with these names, and without its checkpoints.
      trace: the trace of `jax.checkpoint(named, policy=policy)`.
      saved_bytes: the bytes of computed residuals that `trace` saves.
      replaced_bytes: the bytes of values that `auto` saves but that no name can save, because they are inside a
        derivative or a library, or because a derivative reads them without the name, such as that of `tanh`. Other
        values of at most as many bytes replace them, with the least recompute.
    """

    def __init__(
        self,
        names: tuple[Name, ...],
        policy: Callable[..., Any],
        named: Callable[..., Any],
        passes: Trace,
        replaced_bytes: int,
    ):
        self.names = names
        self.policy = policy
        self.named = named
        self.trace = passes
        self.replaced_bytes = replaced_bytes
        self.saved_bytes = passes.bytes_by_kind().get("computed", 0)

    def parts(self) -> Iterable[View]:
        saved, recomputes = bytes_text(self.saved_bytes), operations(self.trace.recompute_cost)
        recomputed = count_text(recomputes, "operations")
        yield Paragraph(f"{self.trace.function}, with suggested names: {saved} saved, {recomputed} recomputed")
        if not self.names:
            nothing_saved = "Nothing is saved: jax.checkpoint without a policy saves the same. No name is needed."
            yield Paragraph(nothing_saved if recomputes else "Everything is saved: no checkpoint is needed.")
            return
        rows = [["Saved", "i", "Write", "Line"]]
        for name in self.names:
            which = f"{each_of_common_path(map(str, name.which))} of 0…{name.values - 1}" if name.which else "all"
            line = "\n".join(filter(None, [name.module, str(name.source)]))
            rows.append([bytes_text(name.nbytes), which, name.write, line])
        yield TextTable(rows, self._footer_text(), numeric=("Saved",))

    def _footer_text(self) -> str:
        counted = replaced = ""
        if any(name.which for name in self.names):
            counted = "i is the index of the value if the line computes several. "
        if self.replaced_bytes:
            missing = bytes_text(self.replaced_bytes)
            replaced = f" No name can save {missing} of the values that auto saves; other values replace them."
        return (
            f"{counted}With .policy, with_schedule(model, policy) saves these values and recomputes each other value "
            "just before its use. jax.checkpoint(model, policy=policy) saves the same values, but recomputes all "
            f"others before it uses any of them.{replaced}"
        )


def save_everything_names(call: GradientCall) -> SuggestedNames:
    """Return the result for a plan that saves everything, which needs no names."""
    policy = jax.checkpoint_policies.everything_saveable
    return SuggestedNames((), policy, call.f, call.trace(jax.checkpoint(call.f, policy=policy)), 0)


def suggested_names(
    call: GradientCall,
    linearized: Linearized,
    chosen: Schedule,
    in_its_places: bool,
    cost: CostFunction = work,
) -> SuggestedNames:
    """Return the names that express a choice of saved values.

    Args:
      in_its_places: whether the nameable values stay saved, so that the peak is about the same. Else all saved values
        are chosen again where some cannot be named.

    Raises:
      PlanError: if names cannot express the choice.
    """
    nameable = Nameable(call)
    spots = nameable.spot_of(linearized)
    wanted = chosen.values
    reached = [v for v in wanted if v in spots]
    held = {v: stack.nbytes for v, stack in zip(wanted, chosen.saved, strict=True)}
    replaced = sum(held[v] for v in wanted if v not in spots)
    saved = frozenset(reached)
    if replaced:
        rows = PeakProgram(linearized, reached if in_its_places else (), cost)
        rows.saveable = tuple(v for v in rows.saveable if v in spots)
        found = rows.best(saved=replaced if in_its_places else chosen.saved_bytes)
        saved = found[0] if found else saved
    made = schedule(linearized, saved)
    out_of_reach = [v for v in made.values if v not in spots]
    found_at = {spots[v]: (v, stack.nbytes) for v, stack in zip(made.values, made.saved, strict=True) if v in spots}
    names, written = _choose_names(nameable.spots, found_at)
    policy = jax.checkpoint_policies.save_only_these_names(*dict.fromkeys(names.values()))
    named = nameable.named(names)
    passes = call.trace(jax.checkpoint(named, policy=policy))
    result = SuggestedNames(written, policy, named, passes, replaced)
    if out_of_reach or result.saved_bytes != made.saved_bytes:
        function = linearized.trace.function
        raise PlanError(
            f"names cannot express the choice for {function}: it saves {bytes_text(made.saved_bytes)}, but with "
            f"names JAX saves {bytes_text(result.saved_bytes)}. Use .function."
        )
    return result


def _choose_names(
    spots: Sequence[Spot], saved: Mapping[Spot, tuple[Value, int]]
) -> tuple[dict[Spot, str], tuple[Name, ...]]:
    """Return a name for each spot whose value is saved, and the code to write."""
    groups: dict[tuple[object, ...], list[Spot]] = {}
    for spot in spots:
        groups.setdefault(spot.at, []).append(spot)
    names: dict[Spot, str] = {}
    written: list[Name] = []
    used: set[str] = set()
    for group in groups.values():
        which = [i for i, spot in enumerate(group) if spot in saved]
        if not which:
            continue
        some = len(which) < len(group)
        stem = _unused_name(group[0], used)
        names.update((group[i], f"{stem}.{i}" if some else stem) for i in which)
        text = f'f"{stem}.{{i}}"' if some else f'"{stem}"'
        values = [saved[group[i]] for i in which]
        written.append(
            Name(
                names=tuple(dict.fromkeys(names[group[i]] for i in which)),
                write=_code_to_write(group[0], text),
                source=group[0].expression.source,
                module=each_of_common_path([group[i].module for i in which]),
                types=tuple(dict.fromkeys(type_text(value) for value, _ in values)),
                nbytes=sum(nbytes for _, nbytes in values),
                which=tuple(which) if some else (),
                values=len(group),
            )
        )
    return names, tuple(written)


def _unused_name(spot: Spot, used: set[str]) -> str:
    """Return a name for a function and line that is not used yet."""
    source = spot.expression.source
    function = re.sub(r"\W+", "", source.function.rpartition(".")[2])
    stem = f"{function}_{source.line}"
    names = (f"{stem}{end}" for end in ("", *string.ascii_lowercase, f"_{len(used)}"))
    name = next(name for name in names if name not in used)
    used.add(name)
    return name


def _code_to_write(spot: Spot, name: str) -> str:
    text = spot.expression.text
    call = text.partition("(")[0] or "it"
    if spot.handed:
        return f"at the start of the body of {call}: carry {spot.which} as checkpoint_name(…, {name})"
    if len(spot.eqn.outvars) > 1 or spot.eqn.primitive.name in ("scan", "cond"):
        return f"on leaf {spot.which} of the result of {call}: checkpoint_name(…, {name})"
    return f"checkpoint_name({text or '…'}, {name})"
