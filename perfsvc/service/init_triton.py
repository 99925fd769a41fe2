"""Write a first bench.py for each Triton kernel of a Python file, which is read and not run.

What the text of a kernel shows is filled in: which parameters are arrays, which of them the kernel writes, sizes and
constants, and the reference of a kernel that computes each element by itself. The rest is marked with ``TODO``.
"""

import ast
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from perfsvc.errors import UsageError
from perfsvc.files import write as write_file
from perfsvc.suite.benchfile import FILE_NAME

_LOADS, _STORES = frozenset({"load"}), re.compile(r"store|atomic_\w+")
_NUMPY = {
    "exp": "np.exp",
    "exp2": "np.exp2",
    "log": "np.log",
    "log2": "np.log2",
    "sqrt": "np.sqrt",
    "abs": "np.abs",
    "sin": "np.sin",
    "cos": "np.cos",
    "maximum": "np.maximum",
    "minimum": "np.minimum",
    "where": "np.where",
}
"""The functions of Triton that NumPy has too."""
_FLOATS = re.compile(r"eps|scale|alpha|beta|theta|slope|rate|factor|momentum|^p$", re.IGNORECASE)
"""Names of parameters that are usually not sizes."""
_BLOCK = 1024


@dataclass(frozen=True, slots=True)
class TritonSource:
    """What the text of a kernel shows.

    Attributes:
        arrays: the parameters that are pointers, in order.
        written: those that the kernel writes.
        read: those that the kernel reads.
        constants: the parameters annotated as ``tl.constexpr``, without those that have a default.
        tuned: the constants that the kernel's own tuner or heuristics choose.
        sizes: the other parameters that may be sizes.
        numbers: the other parameters that may be floats or strides.
        parameters: all parameters without a default, in order.
        dimensions: how many dimensions the grid has.
        reference: the NumPy expression of each output, if the kernel computes each element by itself.
    """

    name: str
    line: int
    arrays: tuple[str, ...]
    written: tuple[str, ...]
    read: tuple[str, ...]
    constants: tuple[str, ...]
    tuned: tuple[str, ...]
    sizes: tuple[str, ...]
    numbers: tuple[str, ...]
    parameters: tuple[str, ...]
    dimensions: int
    reference: Mapping[str, str] = field(default_factory=dict)


def write(file: Path, suite: Path, *, force: bool) -> list[Path]:
    """Write a bench.py for each kernel of a file into a folder of its own in the suite, and return their paths.

    Args:
        file: the Python file.
        suite: the folder of the suite; created if it is missing.
        force: overwrite existing files.

    Raises:
        UsageError: the file cannot be read or has no kernel, or a bench.py exists or cannot be written.
    """
    kernels = read(file)
    paths = {suite / _folder(kernel.name) / FILE_NAME: kernel for kernel in kernels}
    if existing := [path for path in paths if path.exists() and not force]:
        raise UsageError(
            f"{existing[0]} exists already, and nothing was written",
            cure="remove it, or write over it: perfsvc init --triton FILE --force",
        )
    for path, kernel in paths.items():
        source = os.path.relpath(file, path.parent).replace(os.sep, "/")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, bench(kernel, source), replace=True)
        except OSError as error:
            cure = "check that you may write there, or choose another folder: --suite FOLDER"
            raise UsageError(f"{path} cannot be written: {error.strerror}", cure=cure) from error
    return list(paths)


def read(file: Path) -> list[TritonSource]:
    """Return the kernels of a Python file, without functions that other kernels call; raises ``UsageError``."""
    try:
        tree = ast.parse(file.read_bytes())
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}", cure="name a Python file: --triton FILE"
        ) from error
    except (SyntaxError, ValueError) as error:  # ValueError: a null byte
        line, why = (f":{error.lineno}", error.msg) if isinstance(error, SyntaxError) else ("", str(error))
        raise UsageError(f"{file}{line} is not valid Python: {why}", cure="correct the file") from error
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and _is_jitted(node)]
    called = {name for node in functions for name in _called(node)}
    kernels = [_kernel(node) for node in functions if node.name not in called and not _returns(node)]
    if not kernels:
        raise UsageError(
            f"{file} has no Triton kernel",
            cure="name a file with functions that @triton.jit decorates at the top level",
        )
    return kernels


def _folder(kernel: str) -> str:
    """Return the folder of a kernel's benchmark: its name without the usual ends."""
    short = re.sub(r"(^_+)|(_kernel$)|(_fwd$)", "", re.sub(r"^_+", "", kernel))
    return short or kernel


# --- reading ---------------------------------------------------------------------------------------------------------


def _last(node: ast.expr) -> str:
    """Return the last name of ``a.b.c`` or ``c``; empty for any other expression."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_jitted(node: ast.FunctionDef) -> bool:
    return any(_last(decorator) == "jit" for decorator in node.decorator_list)


def _called(node: ast.FunctionDef) -> Iterator[str]:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id != node.name:
            yield call.func.id


def _returns(node: ast.FunctionDef) -> bool:
    return any(isinstance(found, ast.Return) and found.value is not None for found in ast.walk(node))


def _kernel(node: ast.FunctionDef) -> TritonSource:
    """Return what the text of a kernel shows."""
    every = [*node.args.posonlyargs, *node.args.args]
    with_default = {item.arg for item in every[len(every) - len(node.args.defaults) :]} if node.args.defaults else set()
    constants = [item.arg for item in every if item.annotation is not None and _last(item.annotation) == "constexpr"]
    names = [item.arg for item in every]
    flow = _Flow(node, names)
    arrays = [name for name in names if name in flow.loaded or name in flow.stored or name.endswith("_ptr")]
    others = [name for name in names if name not in {*arrays, *constants, *with_default}]
    numbers = [name for name in others if _FLOATS.search(name) or "stride" in name]
    written = [name for name in arrays if name in flow.stored]
    reference = flow.elementwise(written)
    return TritonSource(
        name=node.name,
        line=node.lineno,
        arrays=tuple(arrays),
        written=tuple(written),
        read=tuple(name for name in arrays if name in flow.loaded or name not in flow.stored),
        constants=tuple(name for name in constants if name not in {*with_default, *_tuned(node)}),
        tuned=tuple(name for name in constants if name in _tuned(node)),
        sizes=tuple(name for name in others if name not in numbers),
        numbers=tuple(numbers),
        parameters=tuple(name for name in names if name not in {*with_default, *constants}),
        dimensions=flow.dimensions,
        reference=reference,
    )


def _tuned(node: ast.FunctionDef) -> set[str]:
    """Return the names that a kernel's tuner or heuristics give a value: the keys of their dictionaries."""
    tuners = [decorator for decorator in node.decorator_list if _last(decorator) in {"autotune", "heuristics"}]
    texts = (item for tuner in tuners for item in ast.walk(tuner) if isinstance(item, ast.Dict))
    return {
        key.value for item in texts for key in item.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


class _Flow:
    """Find the parameters of a kernel that are addresses which it reads and writes.

    Args:
        node: the kernel.
        parameters: its parameters.

    Attributes:
        loaded: the parameters from which the kernel reads.
        stored: the parameters to which it writes.
        dimensions: how many dimensions its grid has.
    """

    def __init__(self, node: ast.FunctionDef, parameters: list[str]) -> None:
        self._node = node
        self._parameters = parameters
        self._assigned: dict[str, list[ast.expr]] = {}
        self._changed: set[str] = set()  # assigned more than once, or in place
        for item in ast.walk(node):
            if isinstance(item, ast.Assign) and len(item.targets) == 1 and isinstance(item.targets[0], ast.Name):
                self._assigned.setdefault(item.targets[0].id, []).append(item.value)
            elif isinstance(item, ast.AugAssign) and isinstance(item.target, ast.Name):
                self._changed.add(item.target.id)
        self._changed |= {name for name, values in self._assigned.items() if len(values) > 1}
        calls = [item for item in ast.walk(node) if isinstance(item, ast.Call) and item.args]
        self._loads = [call for call in calls if _last(call) in _LOADS]
        self._stores = [call for call in calls if _STORES.fullmatch(_last(call))]
        self.loaded = {base for call in self._loads if (base := self._base(call.args[0]))}
        self.loaded |= {base for call in self._stores if _last(call) != "store" and (base := self._base(call.args[0]))}
        self.stored = {base for call in self._stores if (base := self._base(call.args[0]))}
        axes = [
            item.args[0].value if item.args and isinstance(item.args[0], ast.Constant) else 0
            for item in calls
            if _last(item) == "program_id"
        ] + [
            keyword.value.value
            for item in ast.walk(node)
            if isinstance(item, ast.Call) and _last(item) == "program_id"
            for keyword in item.keywords
            if isinstance(keyword.value, ast.Constant)
        ]
        self.dimensions = 1 + max((axis for axis in axes if isinstance(axis, int)), default=0)

    def _base(self, address: ast.expr, depth: int = 0) -> str:
        """Return the parameter that an address starts from: the leftmost term of its sums; empty if there is none."""
        while isinstance(address, ast.BinOp) and isinstance(address.op, ast.Add | ast.Sub):
            address = address.left
        if isinstance(address, ast.Call):  # make_block_ptr(base, ...), base.to(...), advance(pointer, ...)
            inner = address.args[0] if address.args else None
            inner = next((word.value for word in address.keywords if word.arg == "base"), inner)
            return self._base(inner, depth + 1) if inner is not None and depth < len(self._parameters) + 8 else ""
        if not isinstance(address, ast.Name):
            return ""
        if address.id in self._parameters:
            return address.id
        values = self._assigned.get(address.id, ())
        deeper = (self._base(value, depth + 1) for value in values) if depth < len(self._parameters) + 8 else ()
        return next(filter(None, deeper), "")

    def elementwise(self, outputs: list[str]) -> dict[str, str]:
        """Return the NumPy expression of each output; empty unless every element depends on its own inputs only."""
        offsets = {ast.dump(offset) for call in (*self._loads, *self._stores) if (offset := self._offset(call.args[0]))}
        if len(offsets) != 1 or len(self._stores) != len(outputs) or not outputs:
            return {}
        found = {self._base(call.args[0]): self._numpy(call.args[1]) for call in self._stores if len(call.args) > 1}
        complete = set(found) == set(outputs) and all(text is not None for text in found.values())
        return {name: text for name, text in found.items() if text is not None} if complete else {}

    def _offset(self, address: ast.expr) -> ast.expr | None:
        """Return what is added to the pointer of an address such as ``x + i``; None for any other form."""
        if isinstance(address, ast.Name) and len(self._assigned.get(address.id, ())) == 1:
            return self._offset(self._assigned[address.id][0])
        if isinstance(address, ast.BinOp) and isinstance(address.op, ast.Add) and isinstance(address.left, ast.Name):
            return address.right
        return ast.Constant("another form") if not isinstance(address, ast.Name) else None

    def _numpy(self, value: ast.expr) -> str | None:  # noqa: PLR0911 - a line for each form of an expression
        """Return a value as a NumPy expression of the inputs; None if this program cannot translate it."""
        match value:
            case ast.Name(id=name) if name in self._assigned and name not in self._changed:
                return self._numpy(self._assigned[name][0])
            case ast.Name(id=name) if name in self._parameters:
                return name
            case ast.Constant(value=int() | float() as number):
                return repr(number)
            case ast.Call(args=[address, *_]) if _last(value) in _LOADS:
                return self._base(address) or None
            case ast.Call(args=arguments, keywords=[]) if _last(value) in _NUMPY:
                parts = [self._numpy(argument) for argument in arguments]
                return f"{_NUMPY[_last(value)]}({', '.join(map(str, parts))})" if None not in parts else None
            case ast.Call(func=ast.Attribute(attr="to", value=inner)):
                return self._numpy(inner)
            case ast.BinOp(left=left, op=operator, right=right) if not isinstance(operator, ast.MatMult):
                sides = self._numpy(left), self._numpy(right)
                return None if None in sides else f"({sides[0]} {_symbol(operator)} {sides[1]})"
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inside = self._numpy(operand)
                return None if inside is None else f"(-{inside})"
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                sides = self._numpy(left), self._numpy(right)
                return None if None in sides else f"({sides[0]} {_symbol(operator)} {sides[1]})"
        return None


def _symbol(operator: ast.operator | ast.cmpop) -> str:
    """Return how Python writes an operator."""
    left, right = ast.Constant(0), ast.Constant(0)
    if isinstance(operator, ast.cmpop):
        return ast.unparse(ast.Compare(left, [operator], [right]))[1:-1].strip()
    return ast.unparse(ast.BinOp(left, operator, right))[1:-1].strip()


# --- writing ---------------------------------------------------------------------------------------------------------


def bench(kernel: TritonSource, source: str) -> str:
    """Return the text of the bench.py of a kernel.

    Args:
        kernel: the kernel.
        source: the path of its file, from the folder of the bench.py.
    """
    sizes = kernel.sizes or ("n",)
    known = bool(kernel.reference) and len(sizes) == 1 and not kernel.numbers
    names, elements = ", ".join(sizes), " * ".join(sizes[:2])
    shape = sizes[0] if len(sizes) == 1 else f"({', '.join(sizes[:2])})"
    block = next((name for name in (*kernel.constants, *kernel.tuned) if "BLOCK" in name.upper()), "")
    grid_names = ", ".join(filter(None, (sizes[0], block)))
    count = f"ceil_div({sizes[0]}, {block})" if block else sizes[0]
    grid = count if kernel.dimensions == 1 else f"({', '.join([count, *['1'] * (kernel.dimensions - 1)])})"
    shape_todo, grid_todo = ("", "") if known and block else ("  # TODO: its shape and dtype", "  # TODO: the programs")
    imported = ["Benchmark", "Tolerance", "Variant", "Work", *(["ceil_div"] if block else [])]
    imported += sorted({_scalar(name).partition("(")[0] for name in kernel.numbers})
    lines = [
        f'"""The Triton kernel {kernel.name} of {source}.{"" if known else " Fill in what TODO marks."}"""',
        "",
        *(["import numpy as np", ""] if any("np." in text for text in kernel.reference.values()) else []),
        f"from perfsvc.suite import {', '.join([*imported, 'output', 'triton'])}",
        "",
        "",
        f"def inputs(rng, {names}):",
        "    return {",
        *(f'        "{name}": rng.random({shape}, dtype="float32"),{shape_todo}' for name in kernel.read),
        *([] if kernel.read else ["        # TODO: the arrays that the kernel reads"]),
        "    }",
        "",
        "",
        *_reference(kernel, sizes, known=known),
        "",
        "",
    ]
    if kernel.tuned:  # the kernel's own tuner chooses the block, so the worker has to find this function by its name
        lines += [f"def grid({grid_names}):{grid_todo}", f"    return {grid}", "", ""]
    points = ", ".join(f'"{name}": ({2**24 if len(sizes) == 1 else 1024},)' for name in sizes)
    smoke = ", ".join(f'"{name}": {1000 if len(sizes) == 1 else 100}' for name in sizes)
    work = f"read_bytes={4 * len(kernel.read)} * {elements}, written_bytes={4 * len(kernel.written)} * {elements}"
    launch_grid = "grid," if kernel.tuned else f"lambda {grid_names}: {grid},{grid_todo}"
    lines += [
        "benchmark = Benchmark(",
        f"    axes={{{points}}},  # TODO: the sizes that matter",
        f"    smoke={{{smoke}}},",
        "    inputs=inputs,",
        "    outputs={",
        *(f'        "{name}": output("float32", lambda {names}: {shape}),{shape_todo}' for name in kernel.written),
        *([] if kernel.written else ["        # TODO: the arrays that the kernel writes"]),
        "    },",
        "    reference=reference,",
        "    tolerance=Tolerance(max=1e-5, mean=1e-6),  # TODO: the largest error of a correct result",
        f"    work=lambda {names}: Work({work}),{'' if known else '  # TODO: the bytes'}",
        "    variants=[",
        "        Variant(",
        '            "triton",',
        f'            source="{source}",',
        "            run=triton(",
        f'                "{kernel.name}",',
        f"                grid={launch_grid}",
        "                args=(",
        *(f"                    {line}" for line in _arguments(kernel)),
        "                ),",
        *(f"                {line}" for line in _constants(kernel)),
        "            ),",
        "        ),",
        "    ],",
        ")",
    ]
    return "\n".join(lines) + "\n"


def _reference(kernel: TritonSource, sizes: tuple[str, ...], *, known: bool) -> list[str]:
    """Return the lines of the reference; it raises an error if perfsvc does not know what the kernel computes."""
    if known:
        texts = [ast.unparse(ast.parse(text)) for text in kernel.reference.values()]  # without needless parentheses
        entries = ", ".join(f'"{name}": {text}' for name, text in zip(kernel.reference, texts, strict=True))
        used = [name for name in (*kernel.read, *sizes) if any(re.search(rf"\b{name}\b", text) for text in texts)]
        return [f"def reference({', '.join(used)}):", f"    return {texts[0] if len(texts) == 1 else f'{{{entries}}}'}"]
    wanted = ", ".join(kernel.written) or "the outputs"
    return [
        f"def reference({', '.join((*kernel.read, *sizes))}):",
        f"    # TODO: compute {wanted} with NumPy; floating inputs arrive in float64",
        f'    raise NotImplementedError("write the reference of {kernel.name}")',
    ]


def _arguments(kernel: TritonSource) -> Iterator[str]:
    """Yield a line for each argument of a launch; a number of unknown value is 1."""
    for name in kernel.parameters:
        if name in {*kernel.arrays, *kernel.sizes}:
            yield f'"{name}",'
        else:
            yield f"{_scalar(name)},  # TODO: {name}"


def _scalar(name: str) -> str:
    return "i64(1)" if "stride" in name else "f64(1.0)"


def _constants(kernel: TritonSource) -> Iterator[str]:
    """Yield a line for each constant that the launch has to give a value."""
    for name in kernel.constants:
        yield f"{name}={_BLOCK}," if "BLOCK" in name.upper() else f"{name}=1,  # TODO: its value"
