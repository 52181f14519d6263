"""Find the statements of a page without side effects on an answer: demonstrations and tests, most often.

They are demonstrations, most often, and tests: calls of functions of the page, of JAX's, of NumPy's. Running them
compiles, and so takes many times as long as an answer. What a statement stores into, and what it changes where that can
be seen, is known (`grader.answers.effects`). This is about the rest: a statement looks on if all that it names is known
to change nothing, and if nothing that an answer builds on and that could be changed is within its reach.
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
}  # the others of NumPy's draw from a state that all of them share
_CHANGING = ("clear", "config", "defjvp", "defvjp", "register", "set", "total_ordering", "update", "_")
_BUILTINS = set(dir(builtins)) - BY_TEXT
_BUILTINS -= {"breakpoint", "compile", "delattr", "exit", "input", "iter", "next", "open", "quit", "setattr"}
_LITERAL = ast.Constant | ast.Tuple | ast.UnaryOp | ast.BinOp | ast.operator | ast.unaryop | ast.expr_context
_MADE_BY_JAX = _LITERAL | ast.Name | ast.Attribute | ast.Call | ast.keyword


def side_effect_free(
    answer: str, statements: Sequence[PlacedStatement], effects: Sequence[Effects], running: list[int], needed: set[int]
) -> set[int]:
    """Return the indices of those that only look on.

    Args:
      answer: the answer's name.
      statements: a page's.
      effects: what each of them does to its names.
      running: the indices of those that run.
      needed: the indices of those that the answer builds on.
    """
    binding: dict[str, list[int]] = {}
    for index in running:
        for name in effects[index].binds:
            binding.setdefault(name, []).append(index)
    if ANY in binding:
        return set()

    def harmless(index: int, name: str, user: int) -> bool:
        """Return whether what a statement binds to a name is harmless in the hands of another one."""
        node, paths = statements[index].node, _attribute_paths(statements[user].node, name)
        if isinstance(node, ast.Import | ast.ImportFrom):
            return all(_changes_nothing(_imported_path(node, name) + path) for path in paths)
        if name == answer or isinstance(node, DEFINITIONS):
            return (name == answer or index in quiet) and not any(paths)  # what has attributes can be given others
        return index in quiet and (index not in needed or made_for_good(node))

    def made_for_good(node: ast.stmt) -> bool:
        """Return whether an assignment binds its names to what cannot be changed: a literal, or what JAX makes."""
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
    """Return whether a statement changes nothing but what its names lead to."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {package for package, _ in imports_of(node)} <= _LIBRARIES
    return not any(
        isinstance(each, ast.Delete | ast.Await | ast.Import | ast.ImportFrom)
        or (isinstance(each, ast.Attribute) and (_is_stored(each) or _says_so(each.attr)))
        for each in ast.walk(node)
    )


def _says_so(word: str) -> bool:
    """Return whether a name says that what it names changes something, or is private."""
    return word.startswith(_CHANGING) and word not in ("__name__", "__doc__")


def _own_names(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds, for itself alone too: variables of comprehensions, exceptions."""
    nodes = list(ast.walk(statement))
    names = {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    return names | {each.name for each in nodes if isinstance(each, ast.ExceptHandler) and each.name}


def _is_stored(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store | ast.Del) and not (
        isinstance(node.value, ast.Name) and node.value.id == "self"
    )


def _attribute_paths(statement: ast.stmt, name: str) -> list[tuple[str, ...]]:
    """Return the attributes, one after the other, that a statement looks up in what has a name, each time that it
    does."""
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
    """Return the path that an import binds to a name: `jax`, `numpy` for `import jax.numpy as jnp`."""
    for alias in node.names:
        path = alias.name.split(".")
        if isinstance(node, ast.ImportFrom) and name == (alias.asname or alias.name):
            return *(node.module or "").split("."), *path
        if isinstance(node, ast.Import) and name == (alias.asname or path[0]):
            return tuple(path if alias.asname else path[:1])
    return ()


def _changes_nothing(path: tuple[str, ...]) -> bool:
    """Return whether what a library has under these names changes nothing of anybody's."""
    if len(path) < 2 or path[0] not in _LIBRARIES or any(map(_says_so, path)):
        return False
    if path[:2] == ("numpy", "testing"):  # of which some run what they are given as text
        return all(name.startswith("assert") for name in path[2:])
    return path[:2] != ("numpy", "random") or path[2:3] in _OWN_RANDOM_NUMBERS
