"""Put numbers and types into words."""


def counted(number: int, things: str) -> str:
    """Return a number and its noun, such as `"2 chunks of rows"` and `"1 chunk of rows"`; `things` is the plural."""
    noun, *of = things.partition(" of ")
    singular = f"{noun.removesuffix('ies')}y" if noun.endswith("ies") else noun.removesuffix("s")
    return f"{number} {singular if number == 1 else noun}{''.join(of)}"


def with_article(noun: str) -> str:
    """Return a noun with its indefinite article, such as `"an int"`."""
    return f"{'an' if noun[0] in 'aeioAEIO' else 'a'} {noun}"
