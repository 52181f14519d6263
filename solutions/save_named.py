"""Worked answer to exercise 7: names are how a function and its policy talk to each other.

Whoever writes a function knows its values, whoever runs it knows how much memory there is. `checkpoint_name` lets the
first give names, without deciding anything; a policy lets the second choose among them.

`save_only_these_names` makes such a policy. It takes names, not a list of names, so the list is unpacked with a star.
A name matches as a whole, and a name that the function does not have is no error: it is never asked about.
"""

import jax


def save_named(f, names):
    """A function that computes what `f` does, and saves of its computed values those that have one of these names.

    Args:
      f: a function of arrays that gives names to some of its values with `checkpoint_name`.
      names: a tuple or list of strings.

    Returns:
      A function of the same arguments.
    """
    return jax.checkpoint(f, policy=jax.checkpoint_policies.save_only_these_names(*names))
