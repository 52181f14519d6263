"""Find which names of a page a statement binds and reads, both when the statement runs and when the functions that it
defines are called.

Stores are recognized in any position: `names["a"] = f`, `helper.scale = 2`, `del names[0]`, `setattr(Config, "a", 1)`,
`globals()["a"] = f`. Calls are not looked into: `slicing` assumes that a call may change all values that it can reach.
"""

import ast
import re
import symtable
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from grader.answers.cells import PlacedStatement, magic_of, segment

ANY = "*"  # stands for any name: `import *`, exec and %run may bind any name
IMPORTS = "import"  # the state that imports depend on: sys.modules, sys.path, the environment
# Names that look up other names by strings.
BY_TEXT = {"__import__", "__main__", "__name__", "eval", "exec", "globals", "importlib", "locals", "vars"}
# Packages whose calls only display something.
TO_LOOK_AT = {"IPython", "altair", "bokeh", "grader", "ipywidgets", "matplotlib", "plotly", "seaborn"}
_WITHOUT_EFFECT = sys.stdlib_module_names | {"jax", "numpy", "rematscope", "scipy", "solutions"} | TO_LOOK_AT
_MODULE_TABLES = ("module", "class")
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
DEFINITIONS = FUNCTIONS | ast.ClassDef


@dataclass(frozen=True)
class Effects:
    """The effects of a top-level statement on the names of its page.

    Attributes:
      binds: the names that it binds or stores into; includes `ANY` if it may bind any name.
      replaces: the bound names that keep nothing of their earlier values.
      binds_on_call: the names that the functions in it bind when they are called, with `global`; includes `ANY` if they
        may bind any name.
      reads_on_run: the names that it reads when it runs.
      reads_on_call: the names that the functions in it read when they are called.
      constant: whether no call can change the defined object, because it is a module or a function. A call can change
        the result of a decorator, as `f.defvjp(…)` does.
      idle: whether the statement only binds its own names.
    """

    binds: set[str]
    replaces: set[str]
    binds_on_call: set[str]
    reads_on_run: set[str]
    reads_on_call: set[str]
    constant: bool
    idle: bool


def effects_of(placed: PlacedStatement) -> Effects:
    """Return the effects of a statement on the names of its page."""
    source, node = placed
    tables = list(_walk_tables(symtable.symtable(segment(source, (node,)), source.place, "exec")))
    on_call = [table for table in tables if table.get_type() not in _MODULE_TABLES]
    reads_on_run = set().union(*(_global_names_read(table) for table in tables if table.get_type() in _MODULE_TABLES))
    reads_on_call = set().union(*map(_global_names_read, on_call))
    binds, binds_on_call = bound_names(node), set().union(*map(_globals_bound, on_call))
    # An augmented assignment reads its target, which symtable does not report.
    stored = (inner.target for inner in outside_definitions(node) if isinstance(inner, ast.AugAssign))
    reads_on_run |= {target.id for target in stored if isinstance(target, ast.Name)}
    if BY_TEXT & (reads_on_run | reads_on_call):
        constants = (inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant))
        words = {word for text in constants if isinstance(text, str) for word in re.findall(r"\w+", text)}
        binds_on_call |= {ANY} if BY_TEXT & reads_on_call else set()
        reads_on_run |= words
        reads_on_call |= reads_on_run
    if imports_of(node):
        reads_on_run.add(IMPORTS)
    idle, function = _is_idle(node), _is_plain_function(node)
    if "sys" in reads_on_run and not idle:
        binds.add(IMPORTS)
    if "sys" in reads_on_call:
        binds_on_call.add(IMPORTS)
    if not function:  # a lambda, a comprehension or an argument of a decorator may be called immediately
        reads_on_run |= reads_on_call
    constant = function or isinstance(node, ast.Import | ast.ImportFrom)
    return Effects(binds, _replaced_names(node), binds_on_call, reads_on_run, reads_on_call, constant, idle)


def bound_names(statement: ast.stmt) -> set[str]:
    """Return the names that a top-level statement binds; `ANY` for `from module import *`."""
    if isinstance(statement, DEFINITIONS):
        return {statement.name}
    names = set()
    for node in outside_definitions(statement):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
                names |= _stored_names(node)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {(alias.asname or alias.name).split(".")[0] for alias in aliases}
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.ExceptHandler(name=str(name)):
                names.add(name)
            case ast.MatchMapping(rest=str(name)):
                names.add(name)
            case ast.Call():
                names |= _names_bound_by_call(node)
    return names


def imports_of(statement: ast.stmt) -> list[tuple[str, ast.alias]]:
    """Return the packages and names that a statement imports."""
    found = []
    for node in ast.walk(statement):
        match node:
            case ast.Import(names=aliases):
                found += [(alias.name.split(".")[0], alias) for alias in aliases]
            case ast.ImportFrom(module=str(module), names=aliases):
                found += [(module.split(".")[0], alias) for alias in aliases]
    return found


def outside_definitions(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield a statement's nodes, except inside functions and classes and the variables of comprehensions."""
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, ast.comprehension):
            todo += [node.iter, *node.ifs]
        elif not isinstance(node, DEFINITIONS | ast.Lambda):
            todo += ast.iter_child_nodes(node)


def _replaced_names(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.ImportFrom(names=aliases):
            return {alias.asname or alias.name for alias in aliases}
        case ast.Import(names=aliases):  # `import a.b` does not replace a.c
            return {alias.asname or alias.name for alias in aliases if alias.asname or "." not in alias.name}
        case ast.Assign(targets=targets):
            nodes = [node for target in targets for node in ast.walk(target)]
            return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
            return {name}
    return set()  # an if, a loop, `x += 1`, `table["a"] = 1`


def _names_bound_by_call(call: ast.Call) -> set[str]:
    """Return the names that `exec`, `setattr`, `%run` or `globals().update` binds or stores into."""
    match call:
        case ast.Call(func=ast.Name(id="exec"), args=[code, *_]):
            try:
                return {name for node in ast.parse(ast.literal_eval(code)).body for name in bound_names(node)}
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                return {ANY}
        case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[target, name, *_]):
            return _name_in_key(name) if "sys" in _root_names(target) else _root_names(target)  # sys.modules[__name__]
        case ast.Call(
            func=ast.Attribute(value=ast.Call(func=ast.Name(id="globals" | "vars" | "locals"), args=[])) as f
        ):
            given = {ANY if keyword.arg is None else keyword.arg for keyword in call.keywords}
            return (
                given | ({ANY} if call.args else set()) if f.attr in ("update", "setdefault", "__setitem__") else set()
            )
    match magic_of(call):
        case _, ["run", _]:
            return {ANY}
        case _, ["env" | "set_env", _]:
            return {"os", IMPORTS}
    return set()


def _stored_names(target: ast.expr) -> set[str]:
    """Return the names that a store changes: `helper.cache = {}`, `table["a"] = 1`, `globals()["a"] = 1`."""
    match target:
        case ast.Subscript(value=ast.Call(func=ast.Name(id="globals" | "vars" | "locals"), args=[]), slice=key):
            return _name_in_key(key)
        case ast.Attribute(value=ast.Name(id="builtins" | "__main__"), attr=name):
            return {name, *_root_names(target)}
    return _root_names(target)


def _name_in_key(name: ast.expr) -> set[str]:
    return {name.value} if isinstance(name, ast.Constant) and isinstance(name.value, str) else {ANY}


def _root_names(node: ast.expr) -> set[str]:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def _walk_tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    todo = [table]
    while todo:
        yield (table := todo.pop())
        todo += table.get_children()


def _global_names_read(table: symtable.SymbolTable) -> set[str]:
    return {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_referenced() and (symbol.is_global() or table.get_type() == "module")
    }


def _globals_bound(table: symtable.SymbolTable) -> set[str]:
    """Return the names of the page that a function binds, with `global`."""
    return {symbol.get_name() for symbol in table.get_symbols() if symbol.is_declared_global() and symbol.is_assigned()}


def _is_plain_function(statement: ast.stmt) -> bool:
    """Return whether a statement defines a function without decorators."""
    return isinstance(statement, FUNCTIONS) and not statement.decorator_list


def _is_idle(statement: ast.stmt) -> bool:
    """Return whether a statement only binds its own names."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {package for package, _ in imports_of(statement)} <= _WITHOUT_EFFECT
    if isinstance(statement, DEFINITIONS):  # a class may register itself with its base class
        return _is_plain_function(statement)
    active = ast.Call | ast.Await | ast.Delete | ast.AugAssign | ast.Import | ast.ImportFrom
    return not any(
        isinstance(node, active)
        or (isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store))
        for node in outside_definitions(statement)
    )
