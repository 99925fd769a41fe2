"""The kernels of a binary, and how the names that users write lead to them.

A user names a kernel as C++ does: ``scale``, or ``tiled::sum<float, 256>``. In a binary, the compiler has changed
(mangled) the name, unless the kernel is ``extern "C"``. Only the compiler knows how: ``sum<real, 2 * 128>`` may be the
same kernel. So a unit with such names ends with one pointer variable for each, whose initial value is the kernel. The
variable's own name is known, and the binary says to which symbol it points. A stored binary therefore knows its
symbols, whichever compiler made it.
"""

import ctypes
import functools
import hashlib
import re
from collections.abc import Callable, Collection

from perfsvc import elf

_PTX_ENTRY = re.compile(r"^\s*(?:\.visible\s+)?\.entry\s+([\w$]+)", re.MULTILINE)
_PTX_START = b"//"  # nvcc's PTX starts with a comment
_PTX_POINTER = re.compile(r"\b(perfsvc_kernel_\w+) = ([\w$]+);")
_MANGLED = "_Z"
_DIGITS = 16


def is_plain(entry: str) -> bool:
    """Return whether a kernel is named without namespaces and template arguments."""
    return entry.isidentifier()


def key(entry: str) -> str:
    """Return an identifier that stands for the name of a kernel: the name itself if it is plain, else a hash."""
    return entry if is_plain(entry) else hashlib.sha256(entry.encode()).hexdigest()[:_DIGITS]


def pointer(entry: str) -> str:
    """Return the name of the variable that points to a kernel."""
    return f"perfsvc_kernel_{key(entry)}"


def kernels(code: bytes) -> tuple[str, ...]:
    """Return the sorted symbols of the kernels in a cubin or in PTX; raises ``ValueError`` for other bytes."""
    if code.startswith(_PTX_START):
        return tuple(sorted(set(_PTX_ENTRY.findall(code.decode()))))
    return tuple(sorted(elf.kernel_texts(code)))


def symbols(code: bytes, entry: str) -> tuple[str, ...]:
    """Return the symbols that a name may mean in a cubin or in PTX: none, one, or several overloaded kernels.

    Args:
        code: the binary.
        entry: the name of a kernel, as the user wrote it when the binary was compiled.

    Raises:
        ValueError: this is neither a cubin nor PTX.
    """
    present = kernels(code)
    if entry in present:
        return (entry,)
    if not is_plain(entry):
        pointed = _pointers(code).get(pointer(entry), "")
        return (pointed,) if pointed in present else ()
    # Itanium C++ ABI, mangling: I begins the arguments of a template, which a plain name lacks.
    mangled = re.compile(rf"{_MANGLED}{len(entry)}{entry}(?!I)")
    return tuple(symbol for symbol in present if mangled.match(symbol))


def symbol(code: bytes, entry: str) -> str:
    """Return the symbol of a kernel, or the name itself if the binary has no such kernel, or is none of a GPU."""
    try:
        found = symbols(code, entry)
    except ValueError:
        return entry
    return found[0] if len(found) == 1 else entry


def readable(code: bytes, entries: Collection[str]) -> dict[str, str]:
    """Return the names that users wrote for kernels, by symbol; only the names in ``entries`` count."""
    return {symbol(code, entry): entry for entry in entries}


def demangled(mangled: str) -> str:
    """Return the C++ name of a symbol with its argument types; the symbol itself if it is not mangled."""
    demangle = _demangler() if mangled.startswith(_MANGLED) else None  # it takes "f" for the type float
    return demangle(mangled) if demangle else mangled


def _pointers(code: bytes) -> dict[str, str]:
    if code.startswith(_PTX_START):
        return dict(_PTX_POINTER.findall(code.decode()))
    return elf.pointers(code)


@functools.cache
def _demangler() -> Callable[[str], str] | None:
    """Return the demangler of the C++ library; None on a machine without this library."""
    try:
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle  # noqa: SLF001 - the name of a C function
    except (OSError, AttributeError):
        return None
    demangle.restype = ctypes.c_void_p
    free = ctypes.CDLL(None).free
    free.argtypes = (ctypes.c_void_p,)

    def name(symbol: str) -> str:
        address = demangle(symbol.encode(), None, None, None)
        if not address:
            return symbol
        try:
            return (ctypes.cast(address, ctypes.c_char_p).value or b"").decode()
        finally:
            free(address)

    return name
