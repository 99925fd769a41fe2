"""What Python functions of a benchmark file depend on: the statements of the file that they reach, and their imports.

Two texts are the same code if these statements are equal. Comments, docstrings, line numbers and other variants do not
matter.
"""

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from perfsvc.model import digest

LAUNCH_OPTIONS = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu", "enable_fp_fusion"})
"""Keywords of a launch that choose how Triton compiles and launches a kernel, not what the kernel computes."""

_TUNERS = frozenset({"autotune", "Config", "heuristics"})
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def same_source(old: str, new: str, functions: Collection[str], *, outline: bool = False) -> bool:
    """Return whether two texts of a benchmark file have the same code behind these functions and the inputs.

    Args:
        old: the first text.
        new: the second text.
        functions: the names of the functions.
        outline: ignore the options and numbers of launches.
    """
    names = frozenset(functions)
    return old == new or source_digest(old, names, outline=outline) == source_digest(new, names, outline=outline)


@lru_cache(maxsize=512)
def source_digest(text: str, functions: frozenset[str] | None, *, outline: bool = False) -> str:
    """Return a digest of the statements that the functions and inputs of a benchmark file depend on.

    Args:
        text: the file's text. A text that this Python cannot parse is hashed as it is.
        functions: the names of the functions; None for the whole text of a module that is no benchmark file.
        outline: leave out the options and numbers of launches.
    """
    try:
        reached = list(_reached(text, functions))
    except SyntaxError:
        return digest(text.encode())
    copies = (_without_docstrings(ast.parse(ast.unparse(node))) for node in reached)
    module = ast.Module(body=[statement for copy in copies for statement in copy.body], type_ignores=[])
    if outline:
        module = _Outliner(module).visit(module)
    return digest(ast.dump(module).encode())


@lru_cache(maxsize=512)
def imports(text: str, functions: frozenset[str] | None, package: str = "") -> tuple[str, ...]:
    """Return the full names of the modules that the functions and inputs of a file import, at any level of nesting.

    ``from a import b`` yields ``a`` and ``a.b``, although ``a.b`` may be no module.

    Args:
        text: the file's text.
        functions: the names of the functions; None for the whole text of a module that is no benchmark file.
        package: the package that relative imports start from.
    """
    names: dict[str, None] = {}
    try:
        nodes = list(_reached(text, functions))
    except SyntaxError:
        return ()
    for statement in nodes:
        for node in ast.walk(statement):
            names.update(dict.fromkeys(_imported(node, package)))
    return tuple(names)


def _imported(node: ast.AST, package: str) -> Iterator[str]:
    """Yield the full names of the modules that a node imports, if it is an import or calls ``import_module``."""
    match node:
        case ast.Import(names=aliases):
            yield from (alias.name for alias in aliases)
        case ast.ImportFrom(module=module, names=aliases, level=level):
            base = package.split(".")[: len(package.split(".")) - level + 1] if level else []
            start = ".".join([*base, *([module] if module else [])])
            if start:
                yield start
                yield from (f"{start}.{alias.name}" for alias in aliases)
        case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]):
            if _last_name(function) in {"import_module", "__import__"}:
                yield name


def _last_name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


# --- what is reached -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Statement:
    """A statement at the top level of a file, with the names it binds and the names it reads."""

    node: ast.stmt
    binds: frozenset[str]
    reads: frozenset[str]

    @property
    def defines(self) -> bool:
        """True if the statement does nothing but bind names, so that it matters only to code that reads these names."""
        if isinstance(self.node, ast.Assign):
            return all(isinstance(target, ast.Name | ast.Tuple) for target in self.node.targets)
        if isinstance(self.node, ast.AnnAssign):
            return isinstance(self.node.target, ast.Name)
        if isinstance(self.node, ast.ImportFrom):
            return all(alias.name != "*" for alias in self.node.names)
        return isinstance(self.node, (*_DEFINITIONS, ast.Import))


def _reached(text: str, functions: frozenset[str] | None) -> Iterator[ast.AST]:
    """Yield the statements of a file that its functions and inputs depend on, in order, then the inputs' expression.

    A statement that does more than bind names may matter to any function, so it is always included. Yield the whole
    file if ``functions`` is None, or if the file has no plain ``benchmark = Benchmark(...)``.

    Raises:
        SyntaxError: this Python cannot parse the text.
    """
    body = _parsed(text).body
    benchmark_call = _benchmark_call(body)
    if functions is None or benchmark_call is None:
        yield from body
        return
    roots = [keyword.value for keyword in benchmark_call.keywords if keyword.arg == "inputs"]
    if any(keyword.arg is None for keyword in benchmark_call.keywords):  # with **fields, any field may hold the inputs
        roots = [benchmark_call]
    statements = [_Statement(node, _bound(node), _read(node)) for node in body]
    wanted = {*functions}.union(*map(_read, roots))  # names that included code reads
    included: set[int] = set()
    growing = True
    while growing:
        growing = False
        for index, statement in enumerate(statements):
            if index not in included and (statement.binds & wanted or not statement.defines):
                included.add(index)
                wanted |= statement.reads
                growing = True
    yield from (_wanted_part(statement.node, wanted) for index, statement in enumerate(statements) if index in included)
    yield from (ast.Expr(root) for root in roots)


@lru_cache(maxsize=64)
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _benchmark_call(body: Sequence[ast.stmt]) -> ast.Call | None:
    """Return the call in ``benchmark = Benchmark(...)``; None if the file makes the benchmark in another way."""
    for node in body:
        match node:
            case ast.Assign(targets=[ast.Name(id="benchmark")], value=ast.Call(args=[]) as call):
                if _last_name(call.func) == "Benchmark":
                    return call
    return None


def _read(tree: ast.AST) -> frozenset[str]:
    """Return the names that a tree reads, including its own local names."""
    return frozenset(
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )


def _bound(statement: ast.stmt) -> frozenset[str]:
    """Return the names that a statement binds at the top level; incomplete if the statement does more than bind."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return frozenset({statement.name})
        case ast.Import() | ast.ImportFrom():
            return frozenset(map(_bound_by_import, statement.names))
        case ast.Assign(targets=targets):
            return frozenset(node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            return frozenset({name})
    return frozenset()


def _bound_by_import(alias: ast.alias) -> str:
    return (alias.asname or alias.name).partition(".")[0]


def _wanted_part(statement: ast.stmt, wanted: Collection[str]) -> ast.stmt:
    """Return a statement; an import is reduced to the wanted names."""
    match statement:
        case ast.Import(names=aliases):
            return ast.Import([alias for alias in aliases if _bound_by_import(alias) in wanted])
        case ast.ImportFrom(module=module, names=aliases, level=level):
            kept = [alias for alias in aliases if alias.name == "*" or _bound_by_import(alias) in wanted]
            return ast.ImportFrom(module, kept, level)
    return statement


def _without_docstrings(tree: ast.Module) -> ast.Module:
    """Remove all docstrings from a tree, in place, and return the tree."""
    for node in ast.walk(tree):
        if isinstance(node, (*_DEFINITIONS, ast.Module)) and node.body:
            match node.body[0]:
                case ast.Expr(value=ast.Constant(value=str())):
                    node.body[:1] = [] if len(node.body) > 1 else [ast.Pass()]
    return tree


# --- launches --------------------------------------------------------------------------------------------------------


class _Outliner(ast.NodeTransformer):
    """Removes what a launch may choose without changing the code: ``LAUNCH_OPTIONS``, and all numbers.

    A launch is ``kernel[grid](...)``, as Triton and Numba write it, or the configurations of Triton's autotuner. If
    only launches read a name, the numbers that are assigned to the name are removed too (``TILE = 4096``).
    """

    def __init__(self, module: ast.Module) -> None:
        self._only_in_launches = _names_of_launches(module)
        self._inside = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Blank the numbers of a kernel launch and drop its options; visit any other call as usual."""
        launched = _launch_parts(node)
        if not launched:
            return self.generic_visit(node)
        if isinstance(node.func, ast.Subscript):
            node.func.value = self.visit(node.func.value)
            node.func.slice = self._blank(node.func.slice)
        node.keywords = [keyword for keyword in node.keywords if keyword.arg not in LAUNCH_OPTIONS]
        node.args = [self._blank(arg) for arg in node.args]
        for keyword in node.keywords:
            keyword.value = self._blank(keyword.value)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Blank the numbers assigned to a name that only launches use; visit any other assignment as usual."""
        if _assigned(node) in self._only_in_launches:
            node.value = self._blank(node.value)
            return node
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        is_number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
        return ast.Constant(0) if self._inside and is_number else node

    def _blank(self, node: ast.expr) -> ast.expr:
        """Return an expression with every number replaced by 0."""
        before, self._inside = self._inside, True
        blank: ast.expr = self.visit(node)
        self._inside = before
        return blank


def _launch_parts(node: ast.AST) -> list[ast.AST]:
    """Return the parts of a launch in which numbers are options; empty if the node is no launch."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
        return [node.func.slice, *node.args, *node.keywords]
    if isinstance(node, ast.Call) and _last_name(node.func) in _TUNERS:
        return [node.func, *node.args, *node.keywords]
    return []


def _assigned(node: ast.AST) -> str:
    """Return the name that a plain assignment binds, else an empty text."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return ""


def _names_of_launches(module: ast.Module) -> frozenset[str]:
    """Return the assigned names that are read, but only in kernel launches or in assignments of other such names."""
    assignments = [node for node in ast.walk(module) if _assigned(node)]
    names = {_assigned(node) for node in assignments}
    while True:  # remove names that other code reads, until none is left to remove
        inside = {id(part) for node in ast.walk(module) for root in _launch_parts(node) for part in ast.walk(root)}
        for node in assignments:
            if isinstance(node, ast.Assign) and _assigned(node) in names:
                inside |= {id(part) for part in ast.walk(node.value)}
        reads = [node for node in ast.walk(module) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
        read_elsewhere = {node.id for node in reads if id(node) not in inside}
        if not names & read_elsewhere:
            return frozenset(names & {node.id for node in reads})  # another module may use what this one never reads
        names -= read_elsewhere
