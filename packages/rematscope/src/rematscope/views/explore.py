"""A panel that checkpoints a function in one way after another, and shows what each changes."""

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax

from rematscope.ir import jax_internals
from rematscope.render.parts import Lines
from rematscope.render.units import bytes_text, count_text, seconds_text
from rematscope.render.widget import live, show_still, widgets_run
from rematscope.seconds.devices import Device, device_called
from rematscope.seconds.roofline import seconds_of
from rematscope.tracing.arguments import flattened
from rematscope.tracing.checkpoints import loss_inside
from rematscope.tracing.trace import Passes, trace
from rematscope.views.linked import Linked

# JAX's policies without arguments, from keeping least to keeping most.
POLICIES = ("nothing_saveable", "dots_with_no_batch_dims_saveable", "dots_saveable", "everything_saveable")
_NO_CHECKPOINT, _NO_POLICY, _NAMES = "no checkpoint", "no policy", "save_only_these_names"


def explore(f: Callable, *args, device: Device | str | None = None, **kwargs) -> None:
    """Shows a panel to checkpoint `f` in: with no policy, with each of JAX's, or saving the names that are ticked.

    Below the controls stand what the choice costs, beside `f` without a checkpoint, both programs, and the table of
    residuals. Values light up as in `linked`. The names are those that `f` gives with `checkpoint_name`, inside jit and
    scan too. Where no panel runs (outside a notebook, or without the extra `notebook`) it shows what that shows first.

    The panel puts one checkpoint around the whole of `f`. A checkpoint that `f` has inside gives way to it, policy and
    all; only "no checkpoint" shows `f` as it is.

    Args:
      f: a function that is differentiable in reverse mode, or a training step: then the loss in it is what is
        checkpointed. It is not run, only traced.
      *args, **kwargs: its arguments, as for `trace`.
      device: adds seconds, as for `compare`, `residual_table` and `print_fwd_bwd`.

    Raises:
      TraceError: as `trace` does.
      TargetError: if there are no rates for the device.

    Example:
      >>> import jax.numpy as jnp
      >>> from jax.ad_checkpoint import checkpoint_name
      >>> from rematscope import explore
      >>> explore(lambda x: jnp.sin(checkpoint_name(jnp.sin(x), "h")), jnp.ones(4))
      jax.checkpoint(<lambda>, policy=jax.checkpoint_policies.save_only_these_names('h'))
      ...
      bytes saved                  32 B          32 B            none
      FLOPs recomputed             0             0               none
      ...
    """
    __tracebackhide__ = True
    rates = None if device is None else device_called(device)
    f, args, kwargs = loss_inside(f, args, kwargs)
    plain = trace(f, *args, **kwargs)
    names = _checkpoint_names(f, *args, **kwargs)

    @functools.cache
    def look(policy: str, *kept: str) -> "_Choice | _Refusal":
        wrapped, written = _checkpointed(f, plain.function, policy, kept)
        try:
            return _Choice(written, trace(wrapped, *args, **kwargs), plain, rates)
        except Exception as error:  # whatever a choice runs into, the reader can go on to the next
            return _Refusal(written, error)

    def view(policy: str, **ticks: bool) -> "_Choice | _Refusal":
        return look(policy, *(name for name in names if policy == _NAMES and ticks[_label(name)]))

    first = _NAMES if names else _NO_POLICY
    if widgets_run():
        live(view, **_controls(names, first))
    else:
        show_still(look(first, *names))


def _controls(names: list[str], first: str) -> dict:
    import ipywidgets

    options = [_NO_CHECKPOINT, _NO_POLICY, *POLICIES, *[_NAMES] * bool(names)]
    policy = ipywidgets.Dropdown(options=options, value=first, description="policy")
    policy.layout.width = "26em"
    ticks = {_label(name): ipywidgets.Checkbox(True, description=_label(name), indent=False) for name in names}

    def choose_names(_change):
        policy.value = _NAMES

    for tick in ticks.values():
        tick.layout.width = "auto"
        tick.observe(choose_names, "value")
    return {"policy": policy, **ticks}


def _label(name: str) -> str:
    return f"save {name!r}"


def _checkpointed(f: Callable, called: str, policy: str, kept: tuple[str, ...]) -> tuple[Callable, str]:
    """`f` under the policy, and how one writes that."""
    if policy == _NO_CHECKPOINT:
        return f, called
    if policy == _NO_POLICY:
        return jax.checkpoint(f), f"jax.checkpoint({called})"
    chosen = getattr(jax.checkpoint_policies, policy)
    written = f"jax.checkpoint_policies.{policy}"
    if policy == _NAMES:
        chosen, written = chosen(*kept), f"{written}({', '.join(map(repr, kept))})"
    return jax.checkpoint(f, policy=chosen), f"jax.checkpoint({called}, policy={written})"


class _Choice(Linked):
    """What one choice costs, above what it saves and does."""

    def __init__(self, written: str, passes: Passes, plain: Passes, device: Device | None):
        super().__init__(passes, device)
        self._costs = Lines([written, "", *_comparison(passes, plain, device)])
        saved, before = bytes_text(passes.saved_device_bytes()), bytes_text(plain.saved_device_bytes())
        self._news = f"This choice saves {saved}; without a checkpoint it is {before}."
        self.views = (self._costs, *self.views)

    def pane(self) -> dict:
        state = super().pane()
        return {**state, "html": f"{self._costs.html()}<br>{state['html']}", "idle": f"{self._news} {state['idle']}"}


class _Refusal(Lines):
    """A choice that cannot be traced, in a sentence."""

    def __init__(self, written: str, error: Exception):
        reason, *_ = str(error).strip().splitlines() or [type(error).__name__]
        reason = re.sub(r" object at 0x\w+", "", reason)
        self._sentence = f"{written} does not work here: {reason}"
        super().__init__([self._sentence])

    def pane(self) -> dict:
        return {"html": "", "notes": [], "idle": self._sentence}  # where a screen reader hears it


def _comparison(passes: Passes, plain: Passes, device: Device | None) -> list[str]:
    """Bytes saved and work done again or late, beside those without a checkpoint."""
    saved, before = passes.saved_device_bytes(), plain.saved_device_bytes()
    share = f" ({100 * (saved - before) / before:+.0f} %)".replace("-", "−") if before and saved != before else ""
    rows = [
        ["", "this choice", "no checkpoint", "change"],
        [
            f"bytes saved{' on a device' if passes.axes else ''}",
            bytes_text(saved),
            bytes_text(before),
            _signed(saved - before, bytes_text) + share,
        ],
    ]
    if passes.host_bytes() or plain.host_bytes():
        hosts = passes.host_bytes(), plain.host_bytes()
        rows.append(["bytes on the host", *map(bytes_text, hosts), _signed(hosts[0] - hosts[1], bytes_text)])
    for title, cost, unit in _WORK:
        now, then = (getattr(getattr(p, cost), unit) for p in (passes, plain))
        if unit == "flops" or now or then:
            rows.append([title, _number(now), _number(then), _signed(now - then, _number)])
    if device is not None:
        now, then = (seconds_of(p, device) for p in (passes, plain))
        texts = ["{} ({})".format(*s.again_texts) if s.again else "none" for s in (now, then)]
        rows.append([f"recomputed for, {device.name}", *texts, _signed(now.again - then.again, seconds_text)])
    for title, cost in _UNCOUNTED:
        left_out = [", ".join(sorted(getattr(p, cost).uncounted)) or "none" for p in (passes, plain)]
        if left_out != ["none", "none"]:
            rows.append([title, *left_out, ""])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["   ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


_WORK = [
    ("FLOPs recomputed", "recompute_cost", "flops"),
    ("FLOPs late", "late_cost", "flops"),
    ("transcendentals recomputed", "recompute_cost", "transcendentals"),
    ("transcendentals late", "late_cost", "transcendentals"),
    ("bytes over links again", "recompute_cost", "link_bytes"),
]

# Rows for what those leave out.
_UNCOUNTED = [("recomputed, not counted", "recompute_cost"), ("late, not counted", "late_cost")]


def _number(count: int) -> str:
    return count_text(count, "").rstrip()


def _signed(change: Any, text: Callable[[Any], str]) -> str:
    return f"{'+' if change > 0 else '−'}{text(abs(change))}" if change else "none"


def _checkpoint_names(f: Callable, *args, **kwargs) -> list[str]:
    """The names that `f` and its derivative give to values, in the order of the program."""
    flat, leaves = flattened(f, args, kwargs)

    def both(*leaves):
        # The function itself has the names whose values are dropped; its derivative has those of custom rules.
        return flat(*leaves), jax.vjp(flat, *leaves)

    return list(dict.fromkeys(_names_in(jax.make_jaxpr(both)(*leaves))))


def _names_in(jaxpr) -> Iterator[str]:
    for eqn in jax_internals.body_of(jaxpr)[0].eqns:
        if (name := jax_internals.checkpoint_name(eqn)) is not None:
            yield name
        elif (body := jax_internals.called_body(eqn)) is not None:
            yield from _names_in(body)
        else:
            for body in jax_internals.jaxprs_in_params(eqn.params):
                yield from _names_in(body)
