"""Kernels that are named as in C++: pointers that make a unit's binary have them, and errors about names."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from perfsvc import entries
from perfsvc.build.toolchain import compile_failure
from perfsvc.errors import CompileError
from perfsvc.model import Unit

_FILE = "entry "
"""Begins the file names in the compiler's messages about a name: the rest is the name."""
_ERROR = re.compile(rf"^{_FILE}(.+?)(?::\d+(?::\d+)?|\(\d+\)): (?:fatal )?error: (.*)", re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_BOUNDS = re.compile(r"__(?:launch_bounds|cluster_dims)__\s*\([^()]*\)")
_KERNEL = re.compile(
    r"(\btemplate\s*<[^;{}]*?>\s*)?(?:\b(?:static|inline)\s+)*\b__global__\b[^;{}()]*?\b(\w+\s*\([^;{}]*?\))\s*[;{]"
)
_UNCLEAR = "deduce"  # the compiler's word if a name means no kernel or several: it does not say which


def marker(entry: str) -> str:
    """Return the line marker after which the compiler's messages are about the name of a kernel."""
    return f'# 1 "{_FILE}{entry}"'


def pointers(unit: Unit) -> str:
    """Return the C++ code of a pointer to each kernel of a unit whose name is not plain; empty if all names are plain.

    The pointer makes the compiler instantiate a template.
    """
    named = [entry for entry in unit.entries if not entries.is_plain(entry)]
    return "".join(f"{marker(entry)}\n__device__ auto {entries.pointer(entry)} = &{entry};\n" for entry in named)


Texts = Callable[[Unit], Mapping[str, bytes]]
"""Returns the texts of the user's files that a unit consists of, by name."""


def failure(unit: Unit, message: str, texts: Texts) -> CompileError:
    """Return the error for a unit that does not compile: a wrong name of a kernel, or a mistake in the source."""
    if wrong := _ERROR.search(message):
        return unknown(unit, wrong[1], declared(texts(unit).values()), "" if _UNCLEAR in wrong[2] else wrong[2])
    return compile_failure(unit, message)


def unknown(unit: Unit, entry: str, present: Collection[str], reason: str = "") -> CompileError:
    """Return the error for a name that means no kernel, or several.

    Args:
        unit: the unit.
        entry: the name of the kernel.
        present: the kernels that there are.
        reason: what the compiler says about the name; empty if that does not help.
    """
    base = entry.partition("<")[0].rpartition("::")[2]
    same = [kernel for kernel in present if re.search(rf"\b{re.escape(base)}\b", kernel)]
    several = len(same) > 1
    what = (
        f"{unit.source.name}: {entry!r} does not name one kernel, but several are called {base}: {'; '.join(same)}"
        if several
        else f"{unit.source.name} has no kernel named {entry}; it has {'; '.join(present) or 'none'}"
    )
    cure = (
        "write the name with its namespace and all arguments of its template; rename kernels that differ only in the "
        "types of their arguments"
        if several
        else 'write the name as C++ does: "scale", or "tiled::sum<float, 256>"'
    )
    return CompileError(f"{what} (the compiler: {reason})" if reason else what, cure=cure)


def declared(texts: Iterable[bytes]) -> tuple[str, ...]:
    """Return the kernels that the files of a unit declare, each with its parameters, in the order of the files."""
    return tuple(dict.fromkeys(_declared(texts)))


def _declared(texts: Iterable[bytes]) -> Iterator[str]:
    for text in texts:
        bare = _BOUNDS.sub(" ", _COMMENT.sub(" ", text.decode(errors="replace")))
        for template, kernel in _KERNEL.findall(bare):
            yield " ".join(f"{template} {kernel}".split())
