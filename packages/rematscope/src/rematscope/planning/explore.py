"""`explore(f, *args)`: an interactive panel that shows the effect of each checkpoint policy."""

import functools
import importlib.util
import re
from collections.abc import Callable, Iterable
from typing import Any

import jax
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from rematscope import jax_compat
from rematscope.choices.build import CostedCall
from rematscope.choices.candidates import candidates
from rematscope.errors import PlanError, TraceError
from rematscope.memory.liveness import live_bytes
from rematscope.planning.frontier import POLICIES, Frontier, point_of
from rematscope.planning.points import pareto_front, points_of_all
from rematscope.render.parts import Lines, Pictured
from rematscope.render.progress import progress_message
from rematscope.render.theme import PICTURES, PLOT_INK
from rematscope.render.units import BYTES, aligned, bytes_text, count_text, difference_text, seconds_text
from rematscope.render.view import View
from rematscope.render.widget import live, show_still, widgets_run
from rematscope.seconds.devices import Device, device_called
from rematscope.seconds.roofline import estimate_time
from rematscope.tracing.arguments import flattened
from rematscope.tracing.checkpoints import loss_inside
from rematscope.tracing.entry_points import with_own_options
from rematscope.tracing.trace import Trace, trace
from rematscope.views.interactive_programs import InteractivePrograms

_NO_CHECKPOINT, _NO_POLICY, _NAMES = "no checkpoint", "no policy", "save_only_these_names"


@with_own_options
def explore(f: Callable, *args, device: Device | str | None = None, **kwargs) -> None:
    """Show an interactive panel for choosing a checkpoint policy for `f`: one of JAX's policies, or names to save.

    Below the controls, the panel shows the cost of the choice compared with `f` without a checkpoint, its position
    relative to the Pareto front, the live bytes over time, and the residuals and both programs as in
    `interactive_programs`. The names are all names that `f` gives with `checkpoint_name`, including names inside `jit`
    and `scan`. In a terminal, or without the extra `notebook`, the panel is static and shows its initial state.

    Each choice puts one checkpoint around all of `f`, which replaces the checkpoints inside `f`. Only the choice "no
    checkpoint" shows `f` as written.

    Args:
      f: a function that is differentiable in reverse mode, or a training step, whose loss then gets the checkpoint. It
        is traced, not run.
      *args, **kwargs: the arguments of `f`, as for `trace`.
      device: the device for time estimates, as for `compare`; None shows no times.

    Raises:
      TraceError: as for `trace`.
      TargetError: if `device` is not known.

    Example:
      >>> import jax.numpy as jnp
      >>> from jax.ad_checkpoint import checkpoint_name
      >>> from rematscope import explore
      >>> explore(lambda x: jnp.sin(checkpoint_name(jnp.sin(x), "h")), jnp.ones(4))
      jax.checkpoint(<lambda>, policy=jax.checkpoint_policies.save_only_these_names('h'))
      ...
      saved, with arguments        32 B          32 B            none
      FLOPs recomputed             0             0               none
      ...
    """
    __tracebackhide__ = True
    rates = None if device is None else device_called(device)
    f, args, kwargs = loss_inside(f, args, kwargs)
    plain = trace(f, *args, **kwargs)
    names = _checkpoint_names(f, *args, **kwargs)
    with progress_message("best choices"):
        best = _best_points(f, *args, **kwargs)

    @functools.cache
    def look(policy: str, *kept: str) -> "_Choice | _Refusal":
        wrapped, written = _apply_policy(f, plain.function, policy, kept)
        try:
            return _Choice(written, trace(wrapped, *args, **kwargs), plain, rates, best)
        except Exception as error:  # after an error of any kind, the reader can still look at another choice
            return _Refusal(written, error)

    def view(policy: str, **ticks: bool) -> "_Choice | _Refusal":
        return look(policy, *(name for name in names if policy == _NAMES and ticks[_choice_label(name)]))

    first = _NAMES if names else _NO_POLICY
    if widgets_run():
        live(view, **_build_controls(names, first))
    else:
        show_still(look(first, *names))


def _build_controls(names: list[str], first: str) -> dict:
    import ipywidgets

    options = [_NO_CHECKPOINT, _NO_POLICY, *POLICIES, *[_NAMES] * bool(names)]
    policy = ipywidgets.Dropdown(options=options, value=first, description="policy")
    policy.layout.width = "26em"
    ticks = {
        _choice_label(name): ipywidgets.Checkbox(True, description=_choice_label(name), indent=False) for name in names
    }

    def choose_names(_change):
        policy.value = _NAMES

    for tick in ticks.values():
        tick.layout.width = "auto"
        tick.layout.margin = "2px 20px 2px 2px"  # a label is closer to its own box than to the next
        tick.observe(choose_names, "value")
    return {"policy": policy, **ticks}


def _choice_label(name: str) -> str:
    return f"save {name!r}"


def _apply_policy(f: Callable, called: str, policy: str, kept: tuple[str, ...]) -> tuple[Callable, str]:
    """Return `f` under the policy, and the code for that."""
    if policy == _NO_CHECKPOINT:
        return f, called
    if policy == _NO_POLICY:
        return jax.checkpoint(f), f"jax.checkpoint({called})"
    chosen = getattr(jax.checkpoint_policies, policy)
    written = f"jax.checkpoint_policies.{policy}"
    if policy == _NAMES:
        chosen, written = chosen(*kept), f"{written}({', '.join(map(repr, kept))})"
    return jax.checkpoint(f, policy=chosen), f"jax.checkpoint({called}, policy={written})"


def _best_points(f: Callable, *args, **kwargs) -> Frontier | None:
    """Return the Pareto front of one checkpoint around `f`; None if it is not known."""
    try:
        found = candidates(CostedCall(jax.checkpoint(f), args, kwargs))
    except (TraceError, PlanError):
        return None
    points = [point for point, _ in points_of_all(found, is_coarse=True)]
    return Frontier(found[0].graph, tuple(pareto_front(points)), (), {}, None, True)


class _Choice(InteractivePrograms):
    """Show the cost of one choice, above the programs."""

    def __init__(self, written: str, passes: Trace, plain: Trace, device: Device | None, best: Frontier | None):
        super().__init__(passes, device)
        self._costs = Lines([written, "", *_comparison_table(passes, plain, device)])
        self._pictures = _Pictures(passes, plain, device, best)
        saved, before = bytes_text(passes.saved_device_bytes()), bytes_text(plain.saved_device_bytes())
        self._news = f"This choice saves {saved}; without a checkpoint, the function saves {before}."
        self.views = (self._costs, self._pictures, *self.views)

    def pane(self) -> dict:
        state = super().pane()
        return {
            **state,
            "html": f"{self._costs.html()}{self._pictures.html()}<br>{state['html']}",
            "idle": f"{self._news} {state['idle']}",
        }


class _Pictures(View):
    """Show the place of a choice on the Pareto front, and the live bytes over time."""

    def __init__(self, passes: Trace, plain: Trace, device: Device | None, best: Frontier | None):
        self._sentence = ""
        self._pictures: list[Pictured] = [_OverTime(passes, plain, device)]
        if best:
            here, before = point_of(passes, "this choice"), point_of(plain, "no checkpoint")
            trade = _AmongTheBest(best.graph, best.points, [before], {}, here, True)
            self._pictures.insert(0, trade)
            self._sentence = _comparison_sentence(trade)

    def html(self) -> str:
        if importlib.util.find_spec("matplotlib") is None:
            return self._pictures[-1].picture()  # which says what to install
        pictures = "".join(picture.picture() for picture in self._pictures)
        sentence = Lines([self._sentence]).html() if self._sentence else ""
        return f'{PICTURES}<div class="rs-pictures">{pictures}</div>{sentence}'

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self._sentence)


_SIZE = 4.8, 2.8  # two of them side by side in JupyterLab


class _AmongTheBest(Frontier):
    """A choice next to the Pareto-optimal choices."""

    size = _SIZE

    def plot(self, ax: Any) -> None:
        super().plot(ax)
        ax.set(title="recompute against saved bytes")


def _comparison_sentence(trade: Frontier) -> str:
    """Return a sentence: whether another choice recomputes less and saves no more bytes."""
    here = trade.current
    assert here is not None
    best = trade.within(here.nbytes)
    if best is None or best.cost >= here.cost:
        return "Pareto-optimal: every choice that saves no more bytes recomputes at least as much."
    choice = " and ".join([*[best.with_policy] * bool(best.with_policy), *map(repr, best.names)]) or "saving nothing"
    amounts = trade.graph.amount(best.cost), trade.graph.amount(here.cost)
    return "With no more bytes saved, {} would recompute {} instead of {}.".format(choice, *amounts)


class _OverTime(Pictured):
    """The live bytes of a choice, and the peak without a checkpoint."""

    size = _SIZE

    def __init__(self, passes: Trace, plain: Trace, device: Device | None):
        self._timeline, self._before = live_bytes(passes, device), live_bytes(plain, device).peak_bytes

    def plot(self, ax: Any) -> None:
        self._timeline.plot(ax)
        before = self._before / BYTES[ax.get_ylabel()]
        ax.axhline(before, color=PLOT_INK, linestyle=":", label="peak without\na checkpoint")
        ax.set(title="bytes live over time", ylim=(0, max(ax.get_ylim()[1], 1.1 * before)))
        ax.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize="small")

    def caption(self) -> str:
        peaks = bytes_text(self._timeline.peak_bytes), bytes_text(self._before)
        return "bytes live over time: the peak is {}, and {} without a checkpoint".format(*peaks)

    def parts(self) -> Iterable[View]:
        return ()


class _Refusal(Lines):
    """A sentence about a choice that cannot be traced."""

    def __init__(self, written: str, error: Exception):
        reason, *_ = str(error).strip().splitlines() or [type(error).__name__]
        reason = re.sub(r" object at 0x\w+", "", reason)
        self._sentence = f"{written} does not work here: {reason}"
        super().__init__([self._sentence])

    def pane(self) -> dict:
        return {"html": "", "notes": [], "idle": self._sentence}  # where a screen reader hears it


def _comparison_table(passes: Trace, plain: Trace, device: Device | None) -> list[str]:
    """Return the saved bytes and the recomputed and deferred work, next to those without a checkpoint."""
    saved, before = passes.saved_device_bytes(), plain.saved_device_bytes()
    share = f" ({difference_text((saved - before) / before, 0)})" if before and saved != before else ""
    rows = [["", "this choice", "no checkpoint", "change"]]
    for title, figure, text, always in _FIGURES:
        now, then = figure(passes), figure(plain)
        if always or now or then:
            rows.append([title, text(now), text(then), _signed_text(now - then, text)])
    rows[1][3] += share
    if passes.axes:
        rows[1][0] = "saved per device, with arguments"
    if device is not None:
        times = [estimate_time(p, device) for p in (passes, plain)]
        texts = ["{} ({})".format(*s.recompute_texts) if s.recompute else "0 s" for s in times]
        more = times[0].recompute - times[1].recompute
        rows.append([f"recompute time, {device.name}", *texts, _signed_text(more, seconds_text)])
    for title, cost in _UNCOUNTED:
        left_out = [", ".join(sorted(getattr(p, cost).uncounted)) or "none" for p in (passes, plain)]
        if left_out != ["none", "none"]:
            rows.append([title, *left_out, ""])
    return aligned(rows)


# The title of a row, its figure and text, and whether the row is shown if both figures are 0.
_FIGURES: list[tuple[str, Callable[[Trace], int], Callable[[Any], str], bool]] = [
    ("saved, with arguments", Trace.saved_device_bytes, bytes_text, True),
    ("bytes in host memory", Trace.host_bytes, bytes_text, False),
    ("FLOPs recomputed", lambda p: p.recompute_cost.flops, count_text, True),
    ("FLOPs deferred", lambda p: p.deferred_cost.flops, count_text, True),
    ("transcendentals recomputed", lambda p: p.recompute_cost.transcendentals, count_text, False),
    ("transcendentals deferred", lambda p: p.deferred_cost.transcendentals, count_text, False),
    ("link bytes recomputed", lambda p: p.recompute_cost.link_bytes, bytes_text, False),
]

# Rows for what those leave out.
_UNCOUNTED = [("recomputed, not counted", "recompute_cost"), ("deferred, not counted", "deferred_cost")]


def _signed_text(change: Any, text: Callable[[Any], str]) -> str:
    return f"{'+' if change > 0 else '−'}{text(abs(change))}" if change else "none"


def _checkpoint_names(f: Callable, *args, **kwargs) -> list[str]:
    """Return the checkpoint names in `f` and its derivative, in program order."""
    flat, leaves = flattened(f, args, kwargs)

    def both(*leaves):
        # The function contains the names of unused values; its derivative contains the names in custom rules.
        return flat(*leaves), jax.vjp(flat, *leaves)

    names = (jax_compat.checkpoint_name(e) for e, _ in jax_compat.walk_equations(jax_compat.make_jaxpr(both)(*leaves)))
    return list(dict.fromkeys(name for name in names if name is not None))
