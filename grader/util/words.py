"""Numbers of things in words."""


def counted(number: int, things: str) -> str:
    """A number and what it is a number of, such as `"2 steps"` and `"1 step"`; `things` ends in an s."""
    return f"{number} {things.removesuffix('s') if number == 1 else things}"
