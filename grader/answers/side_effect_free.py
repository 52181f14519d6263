"""Find the statements of a page that have no side effects on an answer.

Most of them are demonstrations and tests, which call functions of the page, of JAX and of NumPy. Skipping them saves
time, because they compile programs and take many times as long as the answer itself. `grader.answers.effects` finds the
names that a statement stores into and the changes that are visible in its code. This module checks the remaining
statements: a statement has no side effects if every name that it uses is known to change nothing, and if it cannot
reach any mutable value that the answer depends on.
"""

import ast
import builtins
from collections.abc import Sequence

from grader.answers.cells import PlacedStatement
from grader.answers.effects import ANY, BY_TEXT, DEFINITIONS, IMPORTS, Effects, imports_of

_LIBRARIES = {
    *("collections", "functools", "grader", "itertools", "jax", "math", "numpy", "operator", "pprint", "rematscope"),
    *("solutions", "statistics", "string", "textwrap", "time", "timeit", "typing"),
}
_OWN_RANDOM_NUMBERS = {
    ("default_rng",),
    ("Generator",),
}  # NumPy's other random functions draw from a shared global state
_CHANGING = ("clear", "config", "defjvp", "defvjp", "register", "set", "total_ordering", "update", "_")
_BUILTINS = set(dir(builtins)) - BY_TEXT
_BUILTINS -= {"breakpoint", "compile", "delattr", "exit", "input", "iter", "next", "open", "quit", "setattr"}
_LITERAL = ast.Constant | ast.Tuple | ast.UnaryOp | ast.BinOp | ast.operator | ast.unaryop | ast.expr_context
_MADE_BY_JAX = _LITERAL | ast.Name | ast.Attribute | ast.Call | ast.keyword


def side_effect_free(
    answer: str, statements: Sequence[PlacedStatement], effects: Sequence[Effects], running: list[int], needed: set[int]
) -> set[int]:
    """Return the indices of the statements that have no side effects on the answer and that the answer does not need.

    Args:
      answer: the name of the answer.
      statements: the statements of the page.
      effects: the effects of each statement on names.
      running: the indices of the statements that run.
      needed: the indices of the statements that the answer depends on.
    """
    binding: dict[str, list[int]] = {}
    for index in running:
        for name in effects[index].binds:
            binding.setdefault(name, []).append(index)
    if ANY in binding:
        return set()

    def harmless(index: int, name: str, user: int) -> bool:
        """Return whether another statement can use the value that a statement binds to a name without side effects."""
        node, paths = statements[index].node, _attribute_paths(statements[user].node, name)
        if isinstance(node, ast.Import | ast.ImportFrom):
            return all(_changes_nothing(_imported_path(node, name) + path) for path in paths)
        if name == answer or isinstance(node, DEFINITIONS):
            return (name == answer or index in quiet) and not any(paths)  # an object with attributes is mutable
        return index in quiet and (index not in needed or binds_immutable(node))

    def binds_immutable(node: ast.stmt) -> bool:
        """Return whether an assignment binds its names to immutable values: literals or results of JAX functions."""
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if value is None or not all(isinstance(each, _MADE_BY_JAX) for each in ast.walk(value)):
            return False
        names = {each.id for each in ast.walk(value) if isinstance(each, ast.Name)}
        makers = [(statements[index].node, name) for name in names for index in binding.get(name, [])]
        return names <= {name for _, name in makers} and all(
            isinstance(maker, ast.Import | ast.ImportFrom) and _imported_path(maker, name)[0] == "jax"
            for maker, name in makers
        )

    quiet = {index for index in running if _is_quiet(statements[index].node)}
    while loud := {
        index
        for index in quiet
        for name in (effects[index].reads_on_run | effects[index].reads_on_call) - {IMPORTS}
        if not all(harmless(each, name, index) for each in binding.get(name, []))
        or not (name in binding or name in _BUILTINS or name in _own_names(statements[index].node))
    }:
        quiet -= loud
    return quiet - needed


def _is_quiet(node: ast.stmt) -> bool:
    """Return whether the code of a statement shows no changes, apart from effects through the names that it uses."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {package for package, _ in imports_of(node)} <= _LIBRARIES
    return not any(
        isinstance(each, ast.Delete | ast.Await | ast.Import | ast.ImportFrom)
        or (isinstance(each, ast.Attribute) and (_is_stored(each) or _says_so(each.attr)))
        for each in ast.walk(node)
    )


def _says_so(word: str) -> bool:
    """Return whether a name suggests that its function changes something, or is private."""
    return word.startswith(_CHANGING) and word not in ("__name__", "__doc__")


def _own_names(statement: ast.stmt) -> set[str]:
    """Return all names that a statement binds, including the variables of comprehensions and `except` clauses."""
    nodes = list(ast.walk(statement))
    names = {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    return names | {each.name for each in nodes if isinstance(each, ast.ExceptHandler) and each.name}


def _is_stored(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store | ast.Del) and not (
        isinstance(node.value, ast.Name) and node.value.id == "self"
    )


def _attribute_paths(statement: ast.stmt, name: str) -> list[tuple[str, ...]]:
    """Return the chain of attributes of each use of a name in a statement."""
    found: list[tuple[str, ...]] = []
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.insert(0, node.attr)
            node = node.value
        if isinstance(node, ast.Name) and node.id == name:
            found.append(tuple(attributes))
        todo += ast.iter_child_nodes(node)
    return found


def _imported_path(node: ast.Import | ast.ImportFrom, name: str) -> tuple[str, ...]:
    """Return the path that an import binds to a name: `("jax", "numpy")` for `import jax.numpy as jnp`."""
    for alias in node.names:
        path = alias.name.split(".")
        if isinstance(node, ast.ImportFrom) and name == (alias.asname or alias.name):
            return *(node.module or "").split("."), *path
        if isinstance(node, ast.Import) and name == (alias.asname or path[0]):
            return tuple(path if alias.asname else path[:1])
    return ()


def _changes_nothing(path: tuple[str, ...]) -> bool:
    """Return whether the object of a library at this path has no side effects on other objects."""
    if len(path) < 2 or path[0] not in _LIBRARIES or any(map(_says_so, path)):
        return False
    if path[:2] == ("numpy", "testing"):  # other functions of numpy.testing run code that they are given as strings
        return all(name.startswith("assert") for name in path[2:])
    return path[:2] != ("numpy", "random") or path[2:3] in _OWN_RANDOM_NUMBERS
