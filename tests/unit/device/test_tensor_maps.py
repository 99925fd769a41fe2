"""A ``tensor_map`` argument, from the bench.py to the bytes of a launch."""

import ctypes
import struct
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from perfsvc.device.arguments import encode_tensor_map, pack, parameter_layout
from perfsvc.device.cpu import CpuDevice
from perfsvc.device.fake import FakeDevice
from perfsvc.device.memory import HostMemory
from perfsvc.errors import LaunchError
from perfsvc.measure.worker.memory import CaseMemory
from perfsvc.measure.worker.program import Program
from perfsvc.model import (
    Array,
    Buffer,
    BufferArg,
    Case,
    DeviceInfo,
    Kind,
    Launch,
    ReplayRecord,
    Role,
    TensorMapArg,
    codec,
)
from perfsvc.suite import unmet
from perfsvc.suite.requirements import ELEMENTS, SWIZZLES
from tests.unit.suite import benches

FIELDS = {
    "axes": '{"n": (64,)}',
    "smoke": '{"n": 32}',
    "inputs": 'lambda rng, n: {"A": rng.random((n, 2 * n), "f4"), "h": rng.integers(0, 9, (n, n), dtype="uint16")}',
    "outputs": '{"C": output("float32", 1)}',
    "reference": "lambda A: A.sum()",
}
GPU = DeviceInfo("cuda", "cuda:GPU-1", "GPU-1", "NVIDIA X", "sm_90", compute_capability="9.0")
CPU = DeviceInfo("cpu", "cpu", "cpu-1", "CPU", "cpu-x86_64")
MAP = TensorMapArg("A", "float32", (64, 128), (8, 16), 64)


@pytest.fixture
def resolved(tmp_path):
    """The case of a variant with these arguments before its output."""

    def made(args, more=""):
        (tmp_path / "k.cu").write_text("")
        fields = f'source="k.cu", entry="k", grid=1, block=32, params={{"TILE": 8}}, args=({args}, "C"), {more}'
        (spec,) = benches.resolved(tmp_path, **FIELDS, variants=f'[Variant("v", {fields})]')
        return spec

    return made


def maps_of(spec):
    return [arg for arg in spec.steps[0].args if isinstance(arg, TensorMapArg)]


def test_it_takes_its_shape_and_element_from_the_array_and_functions_are_evaluated(resolved):
    spec = resolved('tensor_map("A", box=lambda TILE, n: (TILE, n // 4), swizzle=lambda TILE: 8 * TILE)')
    assert spec.steps[0].args == (MAP, BufferArg("C"))
    assert [buffer.array.name for buffer in spec.buffers] == ["A", "C"]
    record = spec.record(["aa"], "bb")
    assert codec.decode(ReplayRecord, codec.encode(record)) == record


def test_elements_that_numpy_lacks_lie_in_arrays_of_their_size(resolved):
    maps = maps_of(
        resolved(
            'tensor_map("A", box=(8, 8), element="tfloat32"), tensor_map("h", box=(256, 64), element="bfloat16",'
            " swizzle=128)"
        )
    )
    assert [tensor_map.element for tensor_map in maps] == ["tfloat32", "bfloat16"]
    assert maps[1] == TensorMapArg("h", "bfloat16", (64, 64), (256, 64), 128)


def test_a_device_without_tensor_maps_skips_the_case(resolved):
    spec = resolved('tensor_map("A", box=(8, 8))', 'requires="cuda"')
    assert unmet(spec, GPU) == ""
    assert unmet(spec, replace(GPU, compute_capability="8.0")) == "requires sm_90: this device is sm_80"
    assert unmet(spec, CPU) == "requires cuda: this is the CPU device"
    assert unmet(resolved('tensor_map("A", box=(8, 8))'), CPU) == "requires sm_90: this is the CPU device"


def test_rows_unfit_for_tensor_maps_skip_the_case(resolved):
    spec = resolved('tensor_map("H", box=(8, 8))', 'scratch={"H": scratch("float16", lambda n: (n, n + 4))}')
    assert unmet(spec, GPU) == "a tensor map requires rows of a multiple of 16 bytes: a row of 'H' has 136"
    assert unmet(spec, CPU) == "requires sm_90: this is the CPU device"


def test_a_launch_gets_the_tensor_map_that_the_device_encodes():
    class Mapping(HostMemory):
        stream = 0

        def load(self, code):
            return code

        def tensor_map(self, address, arg):
            return np.void(f"{arg.box} at {address}".encode())

        def launch(self, module, launch, args):
            launched.append(args)

    launched = []
    buffers = (Buffer(Array("A", "float32", (64, 128)), Role.INPUT),)
    step = Launch(0, "k", (1, 1, 1), (32, 1, 1), (MAP, BufferArg("A")))
    record = ReplayRecord(Case("b", "v"), Kind.KERNEL, buffers, (step,), ("1",), "", seed=0)
    device = Mapping()
    with CaseMemory(device, buffers) as memory:
        Program(device, record, [b""], memory, {}).queue()
        address = memory.address("A")
        assert [arg.tolist() for arg in launched[0]] == [f"(8, 16) at {address}".encode(), address]


def test_devices_without_tensor_maps_raise_an_error(tmp_path):
    (tmp_path / "script.json").write_text("{}")
    for opened in (CpuDevice(), FakeDevice(tmp_path / "script.json")):
        with pytest.raises(LaunchError, match="this device has no tensor map of 'A'"):
            opened.tensor_map(0, MAP)
        opened.close()


# --- what the driver is asked for, and the bytes of a launch ---------------------------------------------------------

PROTOTYPE = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_uint32,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.POINTER(ctypes.c_uint32),
    *4 * [ctypes.c_int],
)
"""``cuTensorMapEncodeTiled``."""


def test_the_driver_encodes_columns_first_and_its_bytes_are_the_argument():
    asked = []

    @PROTOTYPE
    def encode(target, element, rank, address, sizes, pitches, box, strides, *caches):  # noqa: PLR0917 the driver's own
        assert target % 128 == 0
        ctypes.memmove(target, bytes(range(128)), 128)
        asked.append((element, rank, address, sizes[:2], pitches[0], box[:2], strides[:2], caches))
        return 0

    made = encode_tensor_map(1 << 40, MAP, encode)
    assert made.tobytes() == bytes(range(128))
    assert asked == [(7, 2, 1 << 40, [128, 64], 512, [16, 8], [1, 1], (0, 2, 2, 0))]


def test_a_tensor_map_that_the_driver_refuses_is_a_launch_error():
    with pytest.raises(LaunchError, match=r"the driver refuses a tensor map of 'A' \(CUDA error 1\)"):
        encode_tensor_map(0, MAP, lambda *_: 1)


def test_all_that_the_suite_lets_through_can_be_encoded():
    asked = []
    for element, swizzle in product(ELEMENTS, SWIZZLES):
        encode_tensor_map(
            0, replace(MAP, element=element, swizzle=swizzle), lambda *given: asked.append(given[5][0]) or 0
        )
    assert asked == [128 * np.dtype(ELEMENTS[element]).itemsize for element, _ in product(ELEMENTS, SWIZZLES)]


def test_arguments_are_packed_at_the_offsets_of_the_parameters():
    first, second = np.void(bytes(range(128))), np.void(bytes(range(128, 256)))
    found = ((112, 128), (240, 128), (368, 2), (376, 8))
    given = pack("k", found, (first, second, np.int16(7), np.uint64(9)))
    assert given == bytes(112) + bytes(range(256)) + struct.pack("<h6xQ", 7, 9)


def test_with_an_unknown_layout_each_argument_is_at_a_multiple_of_its_size():
    args = (np.int8(-3), np.float64(0.25), np.int16(700), np.uint64(2**40))
    assert pack("k", None, args) == struct.pack("<b7xdh6xQ", -3, 0.25, 700, 2**40)
    assert pack("k", None, ()) == pack("k", (), ()) == b""


def test_wrong_arguments_are_refused():
    with pytest.raises(LaunchError, match="kernel k takes 2 arguments, and the launch has 1"):
        pack("k", ((0, 4), (8, 8)), (np.int32(1),))
    message = "argument 2 of kernel k has 8 bytes, and the launch gives it int32 of 4 bytes"
    with pytest.raises(LaunchError, match=message):
        pack("k", ((0, 4), (8, 8)), (np.int32(1), np.int32(1)))


def test_a_tensor_map_with_unknown_offset_is_refused():
    assert parameter_layout(b"//\n.version 9.0", "k") is None  # PTX
    message = "kernel k takes a tensor map or a struct, and PTX does not contain its offset"
    with pytest.raises(LaunchError, match=message) as refused:
        pack("k", None, (np.int32(1), np.void(bytes(128))))
    assert "-ptx" in refused.value.cure
