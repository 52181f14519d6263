"""Find which names of a page a statement binds, mutates and reads, both when the statement runs and when the functions
that it defines are called.

Stores are recognized in any position: `names["a"] = f`, `helper.scale = 2`, `del names[0]`, `setattr(Config, "a", 1)`,
`globals()["a"] = f`; calls that may mutate their arguments are recognized by their form: `names.append("b")`,
`@registry.add`, `register(Params)`.
"""

import ast
import re
import symtable
from collections.abc import Iterator
from dataclasses import dataclass, field

from grader.answers.cells import PlacedStatement, magic_of, segment

ANY = "*"  # stands for any name: `import *`, exec and %run may bind any name
IMPORTS = "import"  # the state that imports depend on: sys.modules, sys.path, the environment
# Names that look up other names by strings.
BY_TEXT = {"__import__", "__main__", "__name__", "eval", "exec", "globals", "importlib", "locals", "vars"}
_MODULE_TABLES = ("module", "class")
DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_CHANGING = {
    *("append", "extend", "insert", "add", "update", "setdefault", "set", "pop", "popitem", "remove", "discard"),
    *("clear", "sort", "reverse", "appendleft", "extendleft", "__setitem__", "__enter__", "enter_context"),
}


@dataclass
class Mutations:
    """The mutations by a piece of Python.

    Attributes:
      assigned: the names whose values it replaces or stores into.
      mutated: the names whose values it mutates with calls, unless the values are modules or functions.
      mutates_arguments: for a function, whether it mutates its arguments.
      passed: maps each name that it calls to the names that it passes as arguments.
    """

    assigned: set[str] = field(default_factory=set)
    mutated: set[str] = field(default_factory=set)
    mutates_arguments: bool = False
    passed: dict[str, set[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Effects:
    """The effects of a top-level statement on the names of its page.

    Attributes:
      binds: the names that it binds or stores into; includes `ANY` if it may bind any name.
      replaces: the bound names that keep nothing of their earlier values.
      on_run: the mutations when the statement runs.
      on_call: the mutations when the functions in it are called.
      reads_on_run: the names that it reads when it runs.
      reads_on_call: the names that the functions in it read when they are called.
      constant: whether no call can change the defined object. A call can change the result of a decorator, as
        `f.defvjp(…)` does.
    """

    binds: set[str]
    replaces: set[str]
    on_run: Mutations
    on_call: Mutations
    reads_on_run: set[str]
    reads_on_call: set[str]
    constant: bool


def effects_of(placed: PlacedStatement) -> Effects:
    """Return the effects of a statement on the names of its page."""
    node = placed.node
    now, later = Mutations(), Mutations()
    _collect_mutations(node, now, later)
    reads_on_run, reads_on_call = _used_names(placed)
    constant = isinstance(node, ast.Import | ast.ImportFrom) or (
        isinstance(node, DEFINITIONS) and not node.decorator_list
    )
    return Effects(
        bound_names(node) | now.assigned, _replaced_names(node), now, later, reads_on_run, reads_on_call, constant
    )


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
                names |= _bound_by_call(node)
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


def _collect_mutations(statement: ast.stmt, now: Mutations, later: Mutations) -> None:
    """Record what a statement does when it runs, and what the functions in it do when they are called."""
    todo: list[tuple[ast.AST, _Scope | None]] = [(statement, None)]
    while todo:
        node, scope = todo.pop()
        inner = scope
        if isinstance(node, _FUNCTIONS):
            inner = _Scope.of(node, scope)
            body = node.body if isinstance(node.body, list) else [node.body]
            todo += [(child, inner) for child in body]
            todo += [(child, scope) for child in ast.iter_child_nodes(node) if child not in body]
        else:
            todo += [(child, scope) for child in ast.iter_child_nodes(node)]
        _note_mutation(node, now if scope is None else later, scope)


@dataclass(frozen=True)
class _Scope:
    """The enclosing functions of a node: their local names, their parameters, and the names they declare global."""

    own: frozenset[str]
    given: frozenset[str]

    @classmethod
    def of(cls, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, outer: "_Scope | None") -> "_Scope":
        each = node.args
        parameters = [*each.posonlyargs, *each.args, *each.kwonlyargs, each.vararg, each.kwarg]
        given = {p.arg for p in parameters if p is not None} - {"self", "cls"}
        nodes = [inner for inner in ast.walk(node) if inner is not node]
        stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        stored |= {n.name for n in nodes if isinstance(n, DEFINITIONS)} | {"self", "cls"}
        stored -= {name for n in nodes if isinstance(n, ast.Global) for name in n.names}
        own = given | stored | (outer.own if outer else frozenset())
        return cls(frozenset(own), frozenset(given | (outer.given if outer else frozenset())))


def _note_mutation(node: ast.AST, doing: Mutations, scope: _Scope | None) -> None:
    stores: set[str] = set()
    changes: set[str] = set()
    match node:
        case ast.Global(names=names) if scope:
            stores = set(names)
        case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
            stores = _stored_names(node)
        case ast.Expr(value=ast.Call(func=ast.Attribute() as method)):
            changes = _root_names(method)
        case ast.Call():
            stores, changes = _bound_by_call(node), _changed_by_call(node)
            arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
            for callee in _root_names(node.func):
                doing.passed.setdefault(callee, set()).update(*map(_root_names, arguments))
        case ast.FunctionDef(decorator_list=decorators) | ast.ClassDef(decorator_list=decorators):
            for decorator in decorators:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                changes |= _root_names(called) if isinstance(called, ast.Attribute) else set()
    own, given = (scope.own, scope.given) if scope else (frozenset(), frozenset())
    doing.assigned |= stores - own
    doing.mutated |= changes - own
    doing.mutates_arguments |= bool((stores | changes) & given)


def _bound_by_call(call: ast.Call) -> set[str]:
    """Return the names that `exec`, `setattr`, `%run` or `globals().update` binds or stores into."""
    match call:
        case ast.Call(func=ast.Name(id="exec"), args=[code, *_]):
            try:
                return {name for node in ast.parse(ast.literal_eval(code)).body for name in bound_names(node)}
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                return {ANY}
        case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[target, name, *_]):
            if "sys" in _root_names(target):  # sys.modules[__name__]
                return _name_in_key(name) | {IMPORTS}
            return _root_names(target)
        case ast.Call(
            func=ast.Attribute(value=ast.Call(func=ast.Name(id="globals" | "vars" | "locals"), args=[])) as f
        ):
            given = {ANY if keyword.arg is None else keyword.arg for keyword in call.keywords}
            return (
                given | ({ANY} if call.args else set()) if f.attr in ("update", "setdefault", "__setitem__") else set()
            )
        case ast.Call(func=ast.Attribute() as f) if _about_imports(f):
            return {IMPORTS}
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name.startswith("register"):
            return {name for argument in call.args for name in _root_names(argument)}
    match magic_of(call):
        case _, ["run", _]:
            return {ANY}
        case _, ["env" | "set_env", _]:
            return {"os", IMPORTS}
    return set()


def _changed_by_call(call: ast.Call) -> set[str]:
    match call.func:
        case ast.Attribute(attr=name) if name in _CHANGING:
            return _root_names(call.func)
    return set()


def _stored_names(target: ast.expr) -> set[str]:
    """Return the names that a store changes: `helper.cache = {}`, `table["a"] = 1`, `globals()["a"] = 1`."""
    match target:
        case ast.Subscript(value=ast.Call(func=ast.Name(id="globals" | "vars" | "locals"), args=[]), slice=key):
            return _name_in_key(key)
        case ast.Attribute(value=ast.Name(id="builtins" | "__main__"), attr=name):
            return {name, *_root_names(target)}
    return _root_names(target) | ({IMPORTS} if _about_imports(target) else set())


def _name_in_key(name: ast.expr) -> set[str]:
    return {name.value} if isinstance(name, ast.Constant) and isinstance(name.value, str) else {ANY}


def _root_names(node: ast.expr) -> set[str]:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def _about_imports(node: ast.expr) -> bool:
    """Return whether an expression is `sys.modules`, `sys.path` or a part of one of them."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        match node:
            case ast.Attribute(value=ast.Name(id="sys"), attr="modules" | "path"):
                return True
        node = node.value
    return False


def _used_names(placed: PlacedStatement) -> tuple[set[str], set[str]]:
    source, statement = placed
    tables = list(_all_tables(symtable.symtable(segment(source, (statement,)), source.place, "exec")))
    reads_on_run = set().union(*(_looked_up(table) for table in tables if table.get_type() in _MODULE_TABLES))
    called = set().union(*(_looked_up(table) for table in tables if table.get_type() not in _MODULE_TABLES))
    nodes = list(ast.walk(statement))
    if any(isinstance(node, ast.Import | ast.ImportFrom) for node in nodes):
        reads_on_run.add(IMPORTS)
    stored = (node.target for node in outside_definitions(statement) if isinstance(node, ast.AugAssign))
    reads_on_run |= {
        target.id for target in stored if isinstance(target, ast.Name)
    }  # a use that symtable does not report
    if BY_TEXT & (reads_on_run | called):
        texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        reads_on_run |= {word for text in texts for word in re.findall(r"\w+", text)}
        called |= reads_on_run
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and not statement.decorator_list:
        return reads_on_run, called
    # A lambda, a comprehension or an argument of a decorator may also be called immediately.
    return reads_on_run | called, called


def _all_tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    todo = [table]
    while todo:
        yield (table := todo.pop())
        todo += table.get_children()


def _looked_up(table: symtable.SymbolTable) -> set[str]:
    return {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_referenced() and (symbol.is_global() or table.get_type() == "module")
    }
