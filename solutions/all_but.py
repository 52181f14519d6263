"""Worked answer to exercise 9: exclude one name and save all other named values.

`save_any_names_but_these` makes a policy that returns True for a name unless it is one of the given names, and False
for every operation that is not a name. So it saves the values that the author of `f` named, except the excluded one.

Two other policies have similar names. `save_anything_except_these_names` should save unnamed values too, but it ignores
its names and saves everything. `save_only_these_names` needs a list of all other names of `f`.
"""

import jax


def all_but(f, name):
    """Return a function that computes the same as `f` and saves only the computed values with another name than this.

    Args:
      f: a function of arrays that names some of its values with `checkpoint_name`.
      name: a string.

    Returns:
      A function of the same arguments.
    """
    return jax.checkpoint(f, policy=jax.checkpoint_policies.save_any_names_but_these(name))
