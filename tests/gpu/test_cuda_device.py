import shutil
import statistics
import subprocess
import sys
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from perfsvc.build.nvcc import find_nvcc
from perfsvc.device.find import open_device
from perfsvc.errors import LaunchError
from perfsvc.model import Launch

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def binary_path(helper_kernels, tmp_path_factory):
    """The path of the helper kernels' binary."""
    path = tmp_path_factory.mktemp("helper kernels") / "helper_kernels.cubin"
    path.write_bytes(helper_kernels)
    return path


HERE = Path(__file__).parent
FLOAT = 4


def launch(entry, *, grid=1, block=32, shared_bytes=0):
    return Launch(0, entry, (grid, 1, 1), (block, 1, 1), (), shared_bytes)


def vector_add(device, module, n, *, grid, block=256):
    """What one sample of a vector add queues."""
    args = [np.uint64(device.allocate(n * FLOAT)) for _ in range(3)]
    for address in args:
        device.fill(int(address), n * FLOAT, 0)
    words = launch("add", grid=grid, block=block)
    return lambda: device.launch(module, words, (*args, np.int32(n)))


def test_a_vector_add_takes_as_long_as_in_an_independent_event_timed_loop(device, module, times, tmp_path):
    n, grid, block = 1 << 26, device.info.multiprocessors * 8, 256
    program = tmp_path / "event_loop"
    subprocess.run(
        [find_nvcc(), f"-arch={device.info.target}", "-o", program, HERE / "event_loop.cu"], check=True, timeout=100
    )

    def independent():
        done = subprocess.run(
            [program, str(n), str(grid), str(block)], capture_output=True, text=True, check=True, timeout=60
        )
        return float(done.stdout)

    sample = vector_add(device, module, n, grid=grid, block=block)
    times(sample, 20)
    # Before and after, so that a clock which drifts meanwhile is seen by both.
    before = independent()
    measured = statistics.median(times(sample, 200))
    expected = (before + independent()) / 2
    assert measured == pytest.approx(expected, rel=0.03)


def test_a_cold_sample_of_a_small_kernel_is_slower_than_a_warm_one(device, module, times):
    sample = vector_add(device, module, 1 << 20, grid=device.info.multiprocessors * 4)
    medians = {cold: statistics.median(times(sample, 100, cold=cold)) for cold in (False, True, False)}
    assert medians[True] > 1.1 * medians[False]


def test_the_host_clock_sees_at_least_what_the_device_clock_sees(device, module, times):
    words, args = launch("spin", block=1), (np.int64(2_000_000),)

    def sample():
        device.launch(module, words, args)

    on_device = statistics.median(times(sample, 10, cold=False))
    on_host = statistics.median(times(sample, 10, clock="host", cold=False))
    assert 1e-4 < on_device < on_host < on_device + 1e-3


def test_each_sample_is_timed_by_itself(device, module, times):
    cycles = cycle([4_000_000, 1_000_000])

    def sample():
        device.launch(module, launch("spin", block=1), (np.int64(next(cycles)),))

    device.batch(sample, 2, clock="device", evict_bytes=1 << 20, blocked=False)
    slow, quick = sorted((found := times(sample, 8))[:2], reverse=True)
    assert slow == pytest.approx(4 * quick, rel=0.2)
    assert found[::2] == pytest.approx([found[0]] * 4, rel=0.2)
    assert found[1::2] == pytest.approx([found[1]] * 4, rel=0.2)


def test_arguments_of_every_size_arrive_aligned(device, module):
    address = device.allocate(3 * FLOAT)
    args = (np.int8(-3), np.float64(0.25), np.int16(700), np.uint64(address))
    device.launch(module, launch("mixed", block=1), args)
    out = np.empty(3, np.float32)
    device.download(address, out)
    assert out.tolist() == [-3, 0.25, 700]


def test_a_constant_has_the_value_it_was_set_to(device, module):
    data = np.ones(8, np.float32)
    factors = np.array([2, 3, 5, 7], np.float32)
    x, source = device.allocate(data.nbytes), device.allocate(factors.nbytes)
    device.upload(x, data)
    device.upload(source, factors)
    device.set_constant(module, "factors", source, factors.nbytes)
    device.launch(module, launch("scale"), (np.uint64(x), np.int32(8)))
    device.download(x, data)
    assert data.tolist() == [2, 3, 5, 7, 2, 3, 5, 7]
    with pytest.raises(LaunchError, match="factors holds 16 bytes and was given 20"):
        device.set_constant(module, "factors", source, 20)
    with pytest.raises(LaunchError, match="not found"):
        device.set_constant(module, "factor", source, 16)


def test_a_kernel_may_use_more_shared_memory_than_48_kib(device, module):
    most = device.info.shared_bytes_per_block
    assert most > 48 << 10
    address = device.allocate(most)
    for nbytes in (most, 60 << 10, most):
        n = nbytes // FLOAT
        device.launch(module, launch("reverse", block=256, shared_bytes=nbytes), (np.uint64(address), np.int32(n)))
        out = np.empty(n, np.float32)
        device.download(address, out)
        assert (out == np.arange(n)[::-1]).all()
    with pytest.raises(LaunchError) as raised:
        device.launch(module, launch("reverse", shared_bytes=most + 1024), (np.uint64(address), np.int32(1)))
    assert not raised.value.fatal


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda d, m: d.launch(m, launch("spin", block=2048), (np.int64(1),)), r"invalid argument \(last launch: spin"),
        (lambda d, m: d.launch(m, launch("nowhere"), ()), "not found"),
        (lambda d, m: d.allocate(1 << 50), "out of memory"),
        (lambda d, m: d.load(b"no cubin at all"), "image|PTX"),
    ],
)
def test_a_refusal_of_the_driver_leaves_the_device_usable(device, module, times, ask, message):
    with pytest.raises(LaunchError, match=message) as raised:
        ask(device, module)
    assert not raised.value.fatal
    assert raised.value.cure
    assert times(vector_add(device, module, 1024, grid=4), 3)


FATAL = """
import sys
from pathlib import Path
import numpy as np
from perfsvc.device.find import open_device
from perfsvc.errors import LaunchError
from perfsvc.model import Launch

device = open_device(sys.argv[1], Path(sys.argv[4]).read_bytes())
module = device.load(Path(sys.argv[2]).read_bytes())
address = device.allocate(256)
args = (np.uint64(address),) if sys.argv[3] == "crooked" else ()
try:
    device.launch(module, Launch(0, sys.argv[3], (1, 1, 1), (1, 1, 1), ()), args)
    device.synchronize()
except LaunchError as error:
    print(error.fatal, error.what, bool(error.cure), sep="|")
try:
    device.allocate_untimed(256)
except LaunchError as error:
    print(error.fatal)
device.free(address)
device.close()
print("closed")
"""


@pytest.mark.parametrize(("entry", "message"), [("stray", "illegal memory access"), ("crooked", "misaligned address")])
def test_a_fault_in_a_kernel_is_fatal_and_still_lets_the_device_close(gpus, cubin, binary_path, entry, message):
    # In a process of its own: after such a fault CUDA does nothing more for the process it happened in.
    command = [sys.executable, "-c", FATAL, gpus[0].spec, cubin, entry, binary_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    first, second, third = done.stdout.splitlines()
    fatal, what, has_cure = first.split("|")
    assert (fatal, second, has_cure, third, done.returncode) == ("True", "True", "True", "closed", 0), done.stderr
    assert message in what
    assert entry in what


DISCOVERY = """
import ctypes
from perfsvc.device.find import find

count = len(find(["cuda"]))
cuda = ctypes.CDLL("libcuda.so.1")
current = ctypes.c_void_p()
assert cuda.cuCtxGetCurrent(ctypes.byref(current)) == 0
flags, active = ctypes.c_uint(), ctypes.c_int()
states = []
for device in range(count):
    assert cuda.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active)) == 0
    states.append(active.value)
print(current.value, sum(states))
"""


def test_finding_devices_creates_no_context():
    done = subprocess.run([sys.executable, "-c", DISCOVERY], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.split() == ["None", "0"]


def test_a_process_with_an_open_device_ends_normally(gpus, binary_path):
    program = (
        "import pathlib, sys; from perfsvc.device.find import open_device; "
        "open_device(sys.argv[1], pathlib.Path(sys.argv[2]).read_bytes()).allocate(100)"
    )
    command = [sys.executable, "-c", program, gpus[0].spec, binary_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")


def test_other_libraries_see_device_memory_through_a_view(device):
    address = device.allocate(24)
    interface = device.view(address, "float32", (2, 3)).__cuda_array_interface__
    assert (interface["shape"], interface["typestr"], interface["data"]) == ((2, 3), "<f4", (address, False))
    assert interface["stream"] is None  # the function is given the stream, and a library need not wait for it


def test_a_gpu_is_described_as_by_nvidia_smi(gpus):
    if shutil.which("nvidia-smi") is None:
        pytest.skip("no nvidia-smi on PATH")
    query = ["nvidia-smi", "--query-gpu=uuid,name,compute_cap", "--format=csv,noheader"]
    listed = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert {f"{gpu.uuid}, {gpu.model}, {gpu.compute_capability}" for gpu in gpus} <= set(listed)


def test_the_description_of_a_gpu_is_complete(gpus):
    for gpu in gpus:
        numbers = (gpu.multiprocessors, gpu.clock_hz, gpu.memory_bytes, gpu.l2_bytes, gpu.registers_per_block)
        assert all(numbers), gpu
        assert gpu.clock_hz > 1e8
        assert (gpu.warp_size, gpu.driver != "") == (32, True)


def test_every_gpu_runs_what_was_built_for_it(gpus, cubin, helper_kernels):
    if len(gpus) < 2:
        pytest.skip("one GPU only")
    for gpu in gpus:
        device = open_device(gpu.spec, helper_kernels)
        assert device.info.uuid == gpu.uuid
        module = device.load(cubin.read_bytes())
        sample = vector_add(device, module, 1 << 16, grid=64)
        assert device.batch(sample, 5, clock="device", evict_bytes=1 << 20, blocked=True).samples_s
        device.close()
