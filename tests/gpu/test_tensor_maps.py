"""A tensor map in a kernel's hands: the boxes that it fetches lie in shared memory as the map says."""

from pathlib import Path

import numpy as np
import pytest

from perfsvc.errors import LaunchError
from perfsvc.model import Launch, TensorMapArg, Unit
from tests.gpu.commands import compiled

pytestmark = pytest.mark.gpu

SOURCE = Path(__file__).parent / "tensor_maps.cu"
ROWS, COLUMNS = 90, 144
PIECE = 16


@pytest.fixture(scope="module")
def code(gpus, tmp_path_factory):
    if int(gpus[0].compute_capability.partition(".")[0]) < 9:
        pytest.skip("this GPU has no tensor maps")
    return compiled(Unit(SOURCE, ("fetch", "arrive")), gpus[0].target, tmp_path_factory.mktemp("cache"))


@pytest.fixture
def fetched(device, code):
    """The box of a matrix at a row and a column, as it lies in shared memory."""

    def box(matrix, arg, row, column):
        address = device.allocate(matrix.nbytes)
        device.upload(address, matrix)
        out = np.empty(arg.box, matrix.dtype)
        target = device.allocate(out.nbytes)
        device.launch(
            device.load(code),
            Launch(0, "fetch", (1, 1, 1), (64, 1, 1), (arg,)),
            (device.tensor_map(address, arg), np.uint64(target), np.int32(row), np.int32(column), np.int32(out.nbytes)),
        )
        device.download(target, out)
        return out

    return box


def matrix(dtype):
    return np.arange(1, ROWS * COLUMNS + 1).reshape(ROWS, COLUMNS).astype(dtype)


def swizzled(box, span):
    """A box whose pieces of 16 bytes change places within spans: each goes by the number of its row."""
    pieces = box.reshape(-1).view(np.uint8).reshape(-1, PIECE)
    places = np.arange(len(pieces))
    made = np.empty_like(pieces)
    made[places ^ (places >> 3 & span // PIECE - 1)] = pieces
    return made.reshape(-1).view(box.dtype).reshape(box.shape)


@pytest.mark.parametrize(
    ("element", "dtype"), [("float32", "float32"), ("bfloat16", "uint16"), ("int8", "int8"), ("float64", "float64")]
)
@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_a_box_is_fetched_through_its_tensor_map(fetched, element, dtype, swizzle):
    values = matrix(dtype)
    columns = (swizzle or 64) // values.itemsize
    arg = TensorMapArg("A", element, values.shape, (24, columns), swizzle)
    expected = values[40:64, 16 : 16 + columns]
    box = fetched(values, arg, 40, 16)
    assert (box == (swizzled(expected, swizzle) if swizzle else expected)).all()


def test_tfloat32_is_rounded_to_its_nearest(fetched):
    values = matrix("float32")  # the last of them have more than the eleven bits of a TF32
    arg = TensorMapArg("A", "tfloat32", values.shape, (24, 16))
    expected = values[40:64, 16:32]
    box = fetched(values, arg, 40, 16)
    assert (np.frexp(box)[0] * 2**11 % 1 == 0).all()
    assert (np.abs(box - expected) <= 2.0 ** (np.frexp(expected)[1] - 12)).all()
    assert (box != expected).any()


def test_elements_outside_the_matrix_are_zero(fetched):
    values = matrix("float32")
    arg = TensorMapArg("A", "float32", values.shape, (32, 16))
    expected = np.zeros((32, 16), np.float32)
    expected[:10, :8] = values[80:, 136:]
    assert (fetched(values, arg, 80, 136) == expected).all()


def test_arguments_around_tensor_maps_arrive(device, code):
    address = device.allocate(4 * 8)
    a_map = device.tensor_map(address, TensorMapArg("A", "float32", (2, 4), (2, 4)))
    device.launch(
        device.load(code),
        Launch(0, "arrive", (1, 1, 1), (1, 1, 1), ()),
        (np.int16(700), a_map, a_map, np.float64(0.25), np.int8(-3), np.uint64(address)),
    )
    out = np.empty(4)
    device.download(address, out)
    assert out.tolist() == [0, 700, 0.25, -3]


def test_a_refusal_of_the_driver_is_reported(device):
    with pytest.raises(LaunchError, match="the driver refuses a tensor map of 'A'"):
        device.tensor_map(device.allocate(64), TensorMapArg("A", "float32", (4, 3), (4, 4)))
