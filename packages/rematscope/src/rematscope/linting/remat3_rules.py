"""The rules about `jax_remat3`: names and policies that have less effect with it than by default, or drop a gradient.

With `jax_remat3` set, JAX 0.12.0.1 asks a policy about names, matmuls and convolutions only, and about nothing inside a
function with a derivative rule of its own. It therefore does not save a name in the forward rule of a `custom_vjp`. JAX
PR 40309 restores that; so does the experimental switch `jax_custom_vjp3`.
"""

from collections.abc import Iterator

import jax

from rematscope import jax_compat
from rematscope.choices.build import SAVED_DIFFERENTLY, recompute_cost_of
from rematscope.choices.recompute_graph import RecomputeGraph
from rematscope.ir.attention_costs import FORWARD_KERNELS
from rematscope.ir.source import Source
from rematscope.linting.checkpoint_rules import policy_allows
from rematscope.linting.finding import LintFinding, LintKind
from rematscope.linting.linted_function import (
    RULE_SWITCH,
    Checkpoint,
    LintedFunction,
    line_text,
    on_line,
    saved_bytes,
    switch_text,
)
from rematscope.render.units import amount_text, bytes_text, first_of
from rematscope.tracing.checkpoints import lost_gradient_text, names_without_gradient
from rematscope.tracing.trace import Trace

_ASKED = frozenset({"dot_general", "conv_general_dilated"})  # and names
_OPENED = frozenset({"scan", "while", "cond", "shard_map"})  # a policy is asked about their bodies' operations


def remat3_findings(
    linted: LintedFunction, predicted: RecomputeGraph, by_default: Trace, now: Trace
) -> Iterator[LintFinding]:
    """Yield findings about names and policies whose effect `jax_remat3` removes.

    Args:
      predicted: the recompute graph of the function with `jax_remat3` set.
      by_default, now: the traces of the function as written, by default and with `jax_remat3` set.
    """
    for name, reason in predicted.barred.items():
        if reason == SAVED_DIFFERENTLY:
            yield _name_finding(linted, predicted, name)
    if effect := _lost_effect(by_default, now):
        groups: dict[tuple[Source | None, ...], Checkpoint] = {}
        for checkpoint in linted.checkpoints:
            groups.setdefault(checkpoint.lines, checkpoint)
        for checkpoint in groups.values():
            if ignored := _not_asked(checkpoint):
                yield _policy_finding(checkpoint, ignored, effect)


def lost_gradient_findings(as_run: LintedFunction) -> list[LintFinding]:
    """Return findings about names whose saved values have no gradient, in a function traced with `jax_remat3` set."""
    lost = names_without_gradient(as_run.jaxpr).items()
    return [LintFinding(LintKind.REMAT3, lost_gradient_text(name, source), source, name) for name, source in lost]


def _lost_effect(by_default: Trace, now: Trace) -> str:
    """Return how many bytes fewer the function saves with `jax_remat3`, else what more it recomputes; "" if neither."""
    saved, saved_now = saved_bytes(by_default), saved_bytes(now)
    if saved_now < saved:
        return f"saves {bytes_text(saved_now)} instead of {bytes_text(saved)}"
    cost, cost_now = recompute_cost_of(by_default), recompute_cost_of(now)
    return f"recomputes {amount_text(cost_now)} operations instead of {amount_text(cost)}" * (cost_now > cost)


def _name_finding(linted: LintedFunction, predicted: RecomputeGraph, name: str) -> LintFinding:
    named = [node.equation for node in predicted.nodes if node.equation and node.equation.primitive == "name"]
    source = next((equation.source for equation in named if equation.params["name"] == name), None)
    outside = {
        jax_compat.checkpoint_name(eqn)
        for eqn, around in jax_compat.walk_equations(linted.jaxpr)
        if not any(map(jax_compat.is_custom_rule, around))
    }
    if name in outside:
        text = (
            f"{name!r} on {line_text(source)} names a value that jax_remat3 saves differently than JAX's default "
            "rematerialization, such as once per iteration of a loop in which it does not change. Compute the value "
            "outside of the loop, and name it there."
        )
    elif any(eqn.primitive.name == "custom_vjp_call" for eqn, _ in jax_compat.walk_equations(linted.jaxpr)):
        text = (
            f"{name!r} on {line_text(source)} is inside the forward rule of a custom_vjp. With jax_remat3, JAX "
            "0.12.0.1 does not save such a name (JAX PR 40309 restores that). Name the inputs of the function instead, "
            f"or {RULE_SWITCH}."
        )
    else:
        text = (
            f"{name!r} on {line_text(source)} is inside the derivative rule of a custom_jvp. With jax_remat3, JAX "
            "0.12.0.1 does not save such a name. Name the inputs of the function instead."
        )
    return LintFinding(LintKind.REMAT3, text, source, name)


def _not_asked(checkpoint: Checkpoint) -> list[tuple[str, bool]]:
    """Return the primitives that a policy would save but is not called for, and whether each is in a custom rule."""
    policy = checkpoint.policy
    if policy is None or policy is jax.checkpoint_policies.everything_saveable or checkpoint.outer is not None:
        return []
    found = []
    for eqn, around in (pair for body in jax_compat.bodies(checkpoint.eqn) for pair in jax_compat.walk_equations(body)):
        in_rule = any(map(jax_compat.is_custom_rule, around))
        is_asked = jax_compat.checkpoint_name(eqn) is not None or (eqn.primitive.name in _ASKED and not in_rule)
        in_kernel = any(each.primitive.name == "pallas_call" for each in around)
        opened = jax_compat.called_body(eqn) is not None or eqn.primitive.name in _OPENED
        if not (is_asked or in_kernel or opened) and policy_allows(policy, eqn):
            found.append((eqn.primitive.name, in_rule))
    return found


def _policy_finding(checkpoint: Checkpoint, ignored: list[tuple[str, bool]], effect: str) -> LintFinding:
    primitives = first_of(primitive for primitive, _ in ignored)
    text = (
        f"{jax_compat.policy_name(checkpoint.policy)}, the policy of the checkpoint {on_line(checkpoint.source)}, "
        f"returns True for {primitives}, but with jax_remat3 JAX 0.12.0.1 does not ask it: it asks about names, "
        "matmuls and convolutions only, and about nothing inside a function with its own derivative rule. The function "
        f"{effect}."
    )
    switch = switch_text()
    # JAX creates the kernel's residuals. Only a rule around the kernel can name them.
    nameable = [(primitive, in_rule) for primitive, in_rule in ignored if primitive not in FORWARD_KERNELS]
    if nameable:
        text += " Name the values with jax.ad_checkpoint.checkpoint_name and use save_only_these_names."
    if any(in_rule for _, in_rule in nameable):
        text += f" For the residuals of a custom_vjp, name them in its forward rule{switch}."
    if len(nameable) < len(ignored):
        text += (
            " The residuals of cuDNN's attention have no names: name them in the forward rule of a custom_vjp around "
            f"it{switch}."
        )
    return LintFinding(LintKind.REMAT3, text, checkpoint.source)
