"""The parameter types of a kernel as its source declares them, to find an array of another type before it is measured.

A kernel that reads ``float`` from an array of ``float64`` runs without an error and computes nonsense.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

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
