"""The fields of a struct lie where C puts them."""

import ctypes

from perfsvc.model import BufferArg, ScalarArg
from perfsvc.suite import f32, f64, i32, i64, pointer, struct
from perfsvc.suite.signatures import struct_arg

INT, LONG, FLOAT, DOUBLE, POINTER = ctypes.c_int, ctypes.c_longlong, ctypes.c_float, ctypes.c_double, ctypes.c_void_p


def leaf(value):
    return BufferArg(value) if isinstance(value, str) else ScalarArg("", value.dtype, value.value)


def structure(**fields):
    return type("S", (ctypes.Structure,), {"_fields_": list(fields.items())})


INNER = structure(a=INT, b=DOUBLE, c=INT)


def test_a_struct_has_the_size_and_the_offsets_of_c():
    table = [
        (struct(n=i32(1)), structure(n=INT)),
        (struct(n=i32(1), x="x"), structure(n=INT, x=POINTER)),
        (struct(x="x", n=i32(1)), structure(x=POINTER, n=INT)),
        (struct(a=f32(1), b=f64(2), c=f32(3), d=i64(4)), structure(a=FLOAT, b=DOUBLE, c=FLOAT, d=LONG)),
        (struct(n=i32(1), w=(f32(1), f32(2), f32(3)), m=f64(1)), structure(n=INT, w=FLOAT * 3, m=DOUBLE)),
        (struct(n=i32(1), s=struct(a=i32(1), b=f64(2), c=i32(3)), m=f32(1)), structure(n=INT, s=INNER, m=FLOAT)),
        (
            struct(n=i32(1), s=(struct(a=i32(1), b=f64(2), c=i32(3)),) * 2, m=f32(1)),
            structure(n=INT, s=INNER * 2, m=FLOAT),
        ),
    ]
    for written, kind in table:
        arg = struct_arg(written, leaf)
        assert arg.nbytes == ctypes.sizeof(kind)
        assert [offset for offset, _ in arg.fields] == list(offsets(kind, 0))
        assert struct_arg(pointer(written), leaf).fields == arg.fields
        assert (arg.pointer, struct_arg(pointer(written), leaf).pointer) == (False, True)


def offsets(kind, start):
    """Yield the offsets of the numbers and addresses in a C type."""
    if issubclass(kind, ctypes.Structure):
        for name, inner in kind._fields_:
            yield from offsets(inner, start + getattr(kind, name).offset)
    elif issubclass(kind, ctypes.Array):
        for index in range(kind._length_):
            yield from offsets(kind._type_, start + index * ctypes.sizeof(kind._type_))
    else:
        yield start
