"""Worked answer to exercise 25: check first whether the operation is a name, then match the whole name.

A name is an operation called `name`, whose parameter `name` is the string. So a policy for names first checks whether
the operation is a name, and then whether the pattern matches. For every other operation it returns False.

`re.fullmatch` matches the *whole* name. `re.match` matches a prefix, and `re.search` matches any part: with these,
`"mlp"` would match `"mlp_gate"` too. Adding `^` and `$` around the pattern does not help, because `^a|b$` means "starts
with a, or ends with b".

The pattern is compiled once, when the policy is created. JAX calls the policy for each operation while it traces.
Scans, `jax.vmap` and `jax.jit` need no extra code: JAX asks about the same names.
"""

import re


def regex_policy(pattern):
    """Return a policy that saves the values whose whole name matches a regular expression.

    Args:
      pattern: a string, a regular expression for Python's `re`.
    """
    matches = re.compile(pattern).fullmatch

    def policy(operation, *_, **parameters):
        return operation.name == "name" and matches(parameters["name"]) is not None

    return policy
