"""Worked answer to exercise 9: the first rule that matches the whole name decides.

A name is an operation called `name`, whose parameter `name` is the string. So the policy first checks whether the
operation is a name. For every other operation it returns False, also under the rule `(".*", "save")`: that rule matches
every name, and a value without a name has none.

`re.fullmatch` matches the *whole* name. `re.match` matches a prefix, and `re.search` matches any part: with these,
`"mlp"` would match `"mlp_gate"` too. Adding `^` and `$` around the pattern does not help, because `^a|b$` means "starts
with a, or ends with b".

The order of the rules expresses exceptions: "all names but one" is a rule for the one name before a rule for all names.
Two lists of rules are combined by concatenating them, and the first list takes precedence.
"""

import re

from jax.ad_checkpoint import Offloadable

_RETURNED = {"save": True, "recompute": False, "offload": Offloadable(src="device", dst="pinned_host")}


def policy_from_rules(rules):
    """Return a policy that treats each named value as the first rule that matches its whole name says.

    Args:
      rules: pairs of a regular expression for Python's `re` and one of "save", "offload" and "recompute".
    """
    compiled = [(re.compile(pattern), action) for pattern, action in rules]

    def policy(operation, *_, **parameters):
        if operation.name != "name":
            return False
        for pattern, action in compiled:
            if pattern.fullmatch(parameters["name"]):
                return _RETURNED[action]
        return False

    return policy
