"""Worked answer to exercise 25: a policy is asked about everything, and the pattern is about names alone.

A name is an operation, called `name`, whose parameter `name` is the string. So a policy that goes by names has two
questions to ask, in this order: is this a name at all, and does the pattern describe it? To all that is no name it says
no.

`re.fullmatch` asks whether the pattern describes the *whole* name. `re.match` is content with its beginning, and
`re.search` with any part of it: with these, `"mlp"` would be a pattern for `"mlp_gate"` too. To put `^` and `$` around
the pattern is no way out, since `^a|b$` means "begins with a, or ends with b".

The pattern is compiled once, when the policy is made; the policy itself is asked once for each operation, while JAX
traces. Scans, `jax.vmap` and `jax.jit` need nothing of their own: they ask about the same names.
"""

import re


def regex_policy(pattern):
    """A policy that saves the values whose names a regular expression describes from end to end, and no others.

    Args:
      pattern: a string, as Python's `re` takes it.
    """
    described = re.compile(pattern).fullmatch

    def policy(operation, *_, **parameters):
        return operation.name == "name" and described(parameters["name"]) is not None

    return policy
