"""Structs as kernel arguments: fields at the offsets that C++ gives them."""

from collections.abc import Callable
from dataclasses import dataclass

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
