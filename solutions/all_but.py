"""Worked answer to exercise 9: leave one name out, keep the rest.

`save_any_names_but_these` makes a policy that says yes to a name, unless it is one of those given, and no to whatever
is not a name. So it keeps what the author of `f` thought worth a name, and nothing else.

Two others sound alike. `save_anything_except_these_names` ought to keep unnamed values too, but keeps everything: it
never looks at its names. `save_only_these_names` goes the other way round, and needs to know all names of `f`.
"""

import jax


def all_but(f, name):
    """A function that computes what `f` does, and saves of its computed values those that have another name than this.

    Args:
      f: a function of arrays that gives names to some of its values with `checkpoint_name`.
      name: a string.

    Returns:
      A function of the same arguments.
    """
    return jax.checkpoint(f, policy=jax.checkpoint_policies.save_any_names_but_these(name))
