"""Kernels that fail: each fault is an error with its reason, and the device still works afterwards."""

import signal
import subprocess
import sys

import numpy as np
import pytest

from perfsvc.device.cpu import CpuDevice
from perfsvc.errors import LaunchError
from perfsvc.model import Launch, Unit


@pytest.fixture
def faults(kernels):
    run = kernels("faults.cu")
    yield run
    out = np.zeros(256 * 64, np.float32)
    run("fine", 64, 256, out)
    assert (out == 4).all()


def test_a_barrier_that_half_of_the_block_skips_is_named(faults):
    with pytest.raises(LaunchError) as caught:
        faults("divergent", 1, 256, np.zeros(256, np.float32))
    assert caught.value.what == (
        "kernel divergent, block (0,0,0): __syncthreads() at faults.cu:6 was reached by 128 of 256 threads; "
        "128 have exited, 0 wait elsewhere"
    )
    assert not caught.value.fatal


def test_a_return_before_a_barrier_is_named_with_its_block(faults):
    with pytest.raises(LaunchError) as caught:
        faults("returns_early", 4, 64, np.zeros(256, np.float32), np.int32(250))
    assert "kernel returns_early, block (3,0,0): " in caught.value.what
    assert "was reached by 58 of 64 threads; 6 have exited, 0 wait elsewhere" in caught.value.what


def test_two_barriers_in_two_branches_are_not_one(faults):
    with pytest.raises(LaunchError, match=r"reached by 16 of 32 threads; 0 have exited, 16 wait elsewhere"):
        faults("two_barriers", 1, 32, np.zeros(32, np.float32))


def test_a_fault_among_many_blocks_ends_the_launch_once(faults):
    with pytest.raises(LaunchError, match=r"kernel two_barriers, block \(\d+,\d+,0\): "):
        faults("two_barriers", (100, 10), 64, np.zeros(64, np.float32))


def test_an_asynchronous_copy_that_no_gpu_makes_is_named(kernels):
    reasons = {
        "shifted": "__pipeline_memcpy_async of 16 bytes needs addresses that are multiples of 16",
        "too_wide": "__pipeline_memcpy_async copies 4, 8 or 16 bytes, not 32 with 0 zeros",
    }
    for entry, reason in reasons.items():
        with pytest.raises(LaunchError) as caught:
            kernels("copies.cu", ("WIDTH", 4))(entry, 1, 1, np.zeros(16, np.float32))
        assert caught.value.what == f"kernel {entry}, block (0,0,0): {reason}"


def test_a_shuffle_with_lanes_that_have_exited_is_named(faults):
    with pytest.raises(LaunchError) as caught:
        faults("shuffle_with_the_gone", 1, 32, np.zeros(32, np.int32))
    assert (
        "__shfl_down_sync() at faults.cu:27 was reached by 8 of 32 lanes that mask 0xffffffff names in warp 0"
        in str(caught.value)
    )
    assert "24 have exited" in caught.value.what


def test_a_lane_outside_its_own_mask_is_named(faults):
    with pytest.raises(LaunchError, match=r"__shfl_sync\(\) at faults.cu:31 was called by lane 16 of warp 0"):
        faults("shuffle_outside_its_mask", 1, 32, np.zeros(32, np.int32))


def test_an_assertion_and_a_trap_are_reported_with_their_threads(faults):
    with pytest.raises(LaunchError, match=r"assertion failed at faults.cu:35: threadIdx.x < 3, in thread \(3,0,0\)"):
        faults("asserts", 1, 8, np.zeros(8, np.int32))
    with pytest.raises(LaunchError, match=r"__trap\(\) by thread \(0,0,0\)"):
        faults("traps", 1, 1)


def test_every_fault_can_be_repeated(faults):
    for _ in range(300):
        with pytest.raises(LaunchError):
            faults("divergent", 4, 256, np.zeros(1024, np.float32))


def test_wrong_arguments_and_an_entry_that_the_module_lacks_are_refused(faults):
    with pytest.raises(LaunchError, match="kernel fine takes 1 arguments, and the launch has 2"):
        faults("fine", 1, 32, np.zeros(32, np.float32), np.int32(1))
    with pytest.raises(LaunchError, match=r"argument 2 of kernel returns_early has 4 bytes, .* int64 of 8"):
        faults("returns_early", 1, 32, np.zeros(32, np.float32), np.int64(1))
    with pytest.raises(LaunchError, match="the module has no kernel nowhere"):
        faults("nowhere", 1, 32)


def test_the_cpu_refuses_what_a_gpu_refuses(device, load):
    shapes = [
        ((1, 1, 1), (1025, 1, 1), 0),
        ((1, 1, 1), (32, 32, 2), 0),
        ((1, 1, 1), (1, 1, 65), 0),
        ((0, 1, 1), (32, 1, 1), 0),
        ((1, 65536, 1), (32, 1, 1), 0),
        ((1, 1, 1), (32, 1, 1), (227 << 10) + 1),
    ]
    for grid, block, shared_bytes in shapes:
        with pytest.raises(LaunchError, match="invalid configuration: kernel traps"):
            device.launch(load("faults.cu"), Launch(0, "traps", grid, block, (), shared_bytes), [])


def test_a_missing_or_too_small_constant_is_refused(device, load):
    address = device.allocate(64)
    with pytest.raises(LaunchError, match="no __constant__ nowhere"):
        device.set_constant(load("blocks.cu"), "nowhere", address, 4)
    with pytest.raises(LaunchError, match="coefficients has 16 bytes; 64 do not fit"):
        device.set_constant(load("blocks.cu"), "coefficients", address, 64)
    device.free(address)


def test_bytes_that_are_no_shared_object_are_refused(device):
    for code in (b"", b"text", b"\x7fELF\x02\x01" + bytes(10)):
        with pytest.raises(LaunchError, match="the binary cannot be loaded"):
            device.load(code)


def test_a_stack_overflow_ends_only_its_process(toolchain, data, tmp_path):
    path = tmp_path / "faults.so"
    path.write_bytes(toolchain.compile(Unit(data / "faults.cu", ("deep",))))
    script = (
        "import sys, pathlib, numpy as np\n"
        "from perfsvc.device.cpu import CpuDevice\n"
        "from perfsvc.model import Launch\n"
        "device = CpuDevice()\n"
        "module = device.load(pathlib.Path(sys.argv[1]).read_bytes())\n"
        "out = np.uint64(device.allocate(4096))\n"
        "device.launch(module, Launch(0, 'deep', (1, 1, 1), (256, 1, 1), ()), [out])\n"
    )
    done = subprocess.run([sys.executable, "-c", script, path], check=False, timeout=60)
    assert done.returncode in {-signal.SIGSEGV, -signal.SIGBUS}


def test_a_closed_device_holds_no_stacks(load):
    opened = CpuDevice()
    out = opened.allocate(4096)
    opened.launch(load("faults.cu"), Launch(0, "fine", (64, 1, 1), (16, 1, 1), ()), [np.uint64(out)])
    opened.close()
    assert opened._arenas == []
