"""The parameter types of a kernel as its source declares them, to find an array of another type before it is measured.

A kernel that reads ``float`` from an array of ``float64`` runs without an error and computes nonsense.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from perfsvc.model import BufferArg, ScalarArg, StructArg
from perfsvc.suite.authoring import Scalar, Struct
from perfsvc.suite.authoring.arguments import Field

_ADDRESS_BYTES = 8

Leaf = BufferArg | ScalarArg


@dataclass(frozen=True, slots=True)
class _Layout:
    """The size and the alignment of a value in bytes, and its numbers and addresses with their offsets."""

    nbytes: int
    alignment: int
    leaves: tuple[tuple[int, Leaf], ...]


def struct_arg(written: Struct, leaf: Callable[[str | Scalar], Leaf]) -> StructArg:
    """Return a struct with its fields where C++ puts them.

    Args:
        written: the struct.
        leaf: returns the number or the buffer of a field; may raise ``Problem``.
    """
    layout = _layout(Struct(written.fields), leaf)
    return StructArg(layout.leaves, layout.nbytes, written.is_pointer)


def _layout(value: Field, leaf: Callable[[str | Scalar], Leaf]) -> _Layout:
    """Return the layout of a field: numbers and addresses lie at multiples of their sizes, structs as their members."""
    if isinstance(value, Struct | tuple):
        members = value if isinstance(value, tuple) else [member for _, member in value.fields]
        end, alignment, leaves = 0, 1, []
        for member in members:
            layout = _layout(member, leaf)
            start = _round_up(end, layout.alignment)
            leaves += [(start + offset, inner) for offset, inner in layout.leaves]
            end, alignment = start + layout.nbytes, max(alignment, layout.alignment)
        return _Layout(_round_up(end, alignment), alignment, tuple(leaves))
    resolved = leaf(value)
    nbytes = _ADDRESS_BYTES if isinstance(resolved, BufferArg) else np.dtype(resolved.dtype).itemsize
    return _Layout(nbytes, nbytes, ((0, resolved),))


def _round_up(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


DTYPES = {
    "float": "float32",
    "double": "float64",
    "__half": "float16",
    "half": "float16",
    "int": "int32",
    "signed int": "int32",
    "int32_t": "int32",
    "long long": "int64",
    "long long int": "int64",
    "int64_t": "int64",
}
"""The dtypes of C++ types. Others are left out: bytes and vectors may be another view of the same array."""

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_QUALIFIER = re.compile(r"\b(?:const|volatile|__restrict__|__restrict)\b|\bstd::")
_BOUNDS = re.compile(r"__launch_bounds__\s*\([^()]*\)")
_KERNEL = re.compile(r"\b__global__\b[^;{}()]*?\b(\w+)\s*\(")


def array_dtypes(source: Path, entry: str) -> list[str]:
    """Return the dtype of each argument of a kernel, in order; empty if the argument is no array of a known type.

    The kernel is named as in C++, but found by its name without namespaces and template arguments.

    The list is empty if the source cannot be read, lacks the kernel, or declares the kernel in different ways.
    """
    try:
        changed = source.stat().st_mtime_ns
    except OSError:
        return []
    bare = entry.partition("<")[0].rpartition("::")[2].strip()
    declared = {types for name, types in _declarations(source, changed) if name == bare}
    return list(declared.pop()) if len(declared) == 1 else []


def differs(declared: str, given: str) -> bool:
    """Return whether two dtypes differ in size only: both are floating point, or both are integers.

    An ``int *`` to an array of ``float32`` is no mistake: kernels look at the bits of numbers.
    """
    families = ({"float16", "float32", "float64"}, {"int32", "int64"})
    return declared != given and any({declared, given} <= family for family in families)


@lru_cache
def _declarations(source: Path, changed: int) -> tuple[tuple[str, tuple[str, ...]], ...]:  # noqa: ARG001 - a key
    """Return the name and the dtypes of each ``__global__`` function of a file.

    The time of the file's last change is only a key of the cache, so that a changed file is read again.
    """
    try:
        text = _COMMENT.sub(" ", source.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ()
    return tuple(_kernels(text))


def _kernels(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the name and the dtypes of each ``__global__`` function of a text without comments."""
    bare = _BOUNDS.sub(" ", text)
    for kernel in _KERNEL.finditer(bare):
        parameters, depth = [""], 1
        for character in bare[kernel.end() :]:
            depth += (character in "(<[") - (character in ")>]")
            if depth == 0:
                break
            if character == "," and depth == 1:
                parameters.append("")
            else:
                parameters[-1] += character
        yield kernel[1], tuple(map(_dtype, parameters))


def _dtype(parameter: str) -> str:
    """Return the dtype of the array that a parameter points to; empty if it is no pointer to a type in ``DTYPES``."""
    name, star, rest = parameter.partition("*")
    if not star or "*" in rest:
        return ""
    return DTYPES.get(" ".join(_QUALIFIER.sub(" ", name).split()), "")
