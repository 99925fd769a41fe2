"""What a kernel gets: outputs, scratch memory, and arguments passed by value."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Extent = int | tuple[int, ...]
"""A shape, a grid or a block: one integer or a tuple of them."""

Function = Callable[..., Any]
"""A function of axes (and ``-D`` parameters, where stated). The names of its parameters decide what it is given."""

Words = str | Sequence[str]
"""One word, or several."""


@dataclass(frozen=True, slots=True)
class Output:
    """An array that a variant writes: a result, or scratch memory between two steps.

    ``shape`` is in elements: constant or a function of the axes (for scratch memory also of the parameters).
    """

    dtype: str
    shape: Extent | Function


def output(dtype: str, shape: Extent | Function) -> Output:
    """Declare a result by its NumPy dtype name and its shape; the shape is constant or a function of the axes."""
    return Output(dtype, shape)


def scratch(dtype: str, shape: Extent | Function) -> Output:
    """Declare memory that a variant's steps share; the shape is constant or a function of axes and parameters."""
    return Output(dtype, shape)


# --- arguments -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scalar:
    """A kernel argument passed by value: the name of an axis or parameter, a number, or a function of them."""

    dtype: str
    value: str | float | Function


def i32(value: str | int | Function) -> Scalar:
    """Pass a 32-bit ``int`` argument: an axis or parameter by name, a number, or a function of them."""
    return Scalar("int32", value)


def i64(value: str | int | Function) -> Scalar:
    """Pass a 64-bit ``long long`` argument: an axis or parameter by name, a number, or a function of them."""
    return Scalar("int64", value)


def f32(value: str | float | Function) -> Scalar:
    """Pass a ``float`` argument: an axis or parameter by name, a number, or a function of them."""
    return Scalar("float32", value)


def f64(value: str | float | Function) -> Scalar:
    """Pass a ``double`` argument: an axis or parameter by name, a number, or a function of them."""
    return Scalar("float64", value)


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A kernel argument of the type ``CUtensorMap``."""

    buffer: str
    box: tuple[int, int] | Function
    swizzle: int | Function
    element: str


def tensor_map(
    buffer: str, *, box: tuple[int, int] | Function, swizzle: int | Function = 0, element: str = ""
) -> TensorMap:
    """Pass a ``const __grid_constant__ CUtensorMap`` argument, with which a kernel fetches boxes of a matrix.

    Args:
        buffer: the name of the matrix; it is stored row by row without gaps.
        box: the rows and columns that are fetched at once.
        swizzle: the span in bytes within which 16-byte pieces change places in shared memory: 32, 64 or 128; 0 for
            none.
        element: the type of the elements if it differs from the array's dtype: ``bfloat16`` stored as uint16,
            ``tfloat32`` stored as float32.
    """
    return TensorMap(buffer, box, swizzle, element)


@dataclass(frozen=True, slots=True)
class Peer:
    """A kernel argument: the address of an array on another GPU."""

    buffer: str
    offset: int


def peer(buffer: str, offset: int = 1) -> Peer:
    """Pass the address of an array on another GPU, whose memory the kernel then accesses over the link.

    Args:
        buffer: the name of an array that every GPU has.
        offset: how many GPUs further; after the last GPU follows the first. 1 is the next GPU, -1 the GPU before.
    """
    return Peer(buffer, offset)


Field = Any
"""A field of a struct: like an argument, but no tensor map and no peer; a nested struct; or a tuple for an array."""


@dataclass(frozen=True, slots=True)
class Struct:
    """A kernel argument that is a C++ struct, by value or by address; ``fields`` has names and values in order."""

    fields: tuple[tuple[str, Field], ...]
    is_pointer: bool = False


def struct(**fields: Field) -> Struct:
    """Pass a struct by value.

    Args:
        fields: the fields in the order of the C++ struct. A value is like an argument: the name of a buffer for its
            address, the name of an axis or parameter, ``f64(0.5)``. A tuple is an array, and a struct is nested.
    """
    return Struct(tuple(fields.items()))


def pointer(to: Struct) -> Struct:
    """Pass the address of a struct in device memory; perfsvc copies the struct there before the first launch."""
    return Struct(to.fields, is_pointer=True)


Argument = str | Scalar | TensorMap | Peer | Struct
"""The name of a buffer, axis or parameter, a typed scalar, a tensor map, an array of another GPU, or a struct."""


def parts_of(args: Iterable[Field]) -> Iterator[str | Scalar | TensorMap | Peer]:
    """Yield each argument, and instead of a struct or an array everything that it contains."""
    for arg in args:
        if isinstance(arg, Struct):
            yield from parts_of(value for _, value in arg.fields)
        elif isinstance(arg, tuple):
            yield from parts_of(arg)
        else:
            yield arg


def ceil_div(count: int, size: int) -> int:
    """Return how many groups of ``size`` hold ``count`` items: ``count / size`` rounded up."""
    return -(-count // size)
