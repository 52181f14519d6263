"""Put numbers and types into words."""


def counted(number: int, things: str) -> str:
    """Return a number and its noun, such as `"2 steps"` and `"1 step"`; `things` is the plural of the noun."""
    singular = f"{things.removesuffix('ies')}y" if things.endswith("ies") else things.removesuffix("s")
    return f"{number} {singular if number == 1 else things}"


def with_article(noun: str) -> str:
    """Return a noun with its indefinite article, such as `"an int"`."""
    return f"{'an' if noun[0] in 'aeioAEIO' else 'a'} {noun}"
