import json
import subprocess
import sys
import types
from dataclasses import replace

import pytest

import perfsvc.device
from perfsvc.device.find import find, open_device, why_no_gpu
from perfsvc.errors import NoDeviceError, UsageError
from perfsvc.installation import install_command as install_extra
from perfsvc.model import DeviceInfo

FIRST = DeviceInfo("cuda", "cuda:GPU-5e1a", "GPU-5e1a", "NVIDIA H100 80GB HBM3", "sm_90")
SECOND = replace(FIRST, spec="cuda:GPU-5e99", uuid="GPU-5e99")
CPU = DeviceInfo("cpu", "cpu", "CPU-1", "a processor", "cpu-x86_64")


def install_command(monkeypatch, name, **contents):
    module = types.ModuleType(f"perfsvc.device.{name}")
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    if "." not in name:  # an imported package has the real module as its attribute
        monkeypatch.setattr(perfsvc.device, name, module, raising=False)


@pytest.fixture(autouse=True)
def unrestricted(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def cpu(monkeypatch):
    install_command(monkeypatch, "cpu", describe=lambda: CPU, CpuDevice=lambda info: f"the opened {info.model}")


@pytest.fixture
def gpus(monkeypatch):
    install_command(monkeypatch, "cuda.listing", devices=lambda: [FIRST, SECOND])
    install_command(monkeypatch, "cuda.device", CudaDevice=lambda *what: f"opened {what}")


@pytest.fixture
def no_gpus(monkeypatch):
    install_command(monkeypatch, "cuda.listing", devices=list)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"uuid": "FAKE-7"}))
    return path


def import_fails(monkeypatch, error):
    class Refusing:
        def find_spec(self, name, path=None, target=None):
            if name == "pycuda" or name.startswith("pycuda."):
                raise error

    for name in [name for name in sys.modules if name.startswith(("pycuda", "perfsvc.device.cuda."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Refusing(), *sys.meta_path])


def test_a_specification_names_its_devices(gpus, cpu):
    table = {
        "auto": [FIRST, SECOND],
        "cuda": [FIRST, SECOND],
        "cuda:1": [SECOND],
        "cuda:GPU-5e1a": [FIRST],
        "cuda:gpu-5e9": [SECOND],
        "cuda:1,0": [SECOND, FIRST],
        "cuda:0, 1": [FIRST, SECOND],
        "cuda:GPU-5e9,GPU-5e1": [SECOND, FIRST],
        "cuda:0,GPU-5e9": [FIRST, SECOND],
        "cuda:1,GPU-5e9,1": [SECOND],
        "cpu": [CPU],
    }
    assert {spec: find([spec]) for spec in table} == table


def test_a_device_named_twice_is_returned_once_in_the_order_of_naming(gpus, cpu):
    assert find(["cuda:1", "cpu", "cuda", "cuda:GPU-5e9"]) == [SECOND, CPU, FIRST]
    assert not why_no_gpu()


def test_auto_is_the_cpu_without_a_gpu(no_gpus, cpu):
    assert find(["auto"]) == [CPU]


def test_auto_is_the_cpu_without_pycuda_and_the_command_that_installs_it_is_known(monkeypatch, cpu):
    import_fails(monkeypatch, ModuleNotFoundError("No module named 'pycuda'", name="pycuda"))
    assert find(["auto"]) == [CPU]
    assert why_no_gpu() == "CUDA devices need PyCUDA, which is not installed"
    with pytest.raises(NoDeviceError, match="PyCUDA, which is not installed") as raised:
        find(["cuda"])
    assert raised.value.cure == install_extra("cuda")


def test_a_missing_driver_and_a_pycuda_of_another_toolkit_are_different_errors(monkeypatch):
    import_fails(monkeypatch, ImportError("libcuda.so.1: cannot open shared object file: No such file or directory"))
    with pytest.raises(NoDeviceError, match=r"no NVIDIA driver on this machine \(libcuda"):
        find(["cuda:0"])
    monkeypatch.undo()
    import_fails(monkeypatch, ImportError("libcurand.so.10: cannot open shared object file"))
    with pytest.raises(NoDeviceError, match="PyCUDA cannot be loaded: libcurand"):
        find(["cuda"])


def test_a_machine_without_gpus_is_an_error(no_gpus):
    for spec in ("cuda", "cuda:0"):
        with pytest.raises(NoDeviceError, match="lists no device") as raised:
            find([spec])
        assert "nvidia-smi" in raised.value.cure


def test_an_unknown_gpu_is_an_error_that_lists_the_known_ones(gpus):
    table = {
        "cuda:2": "cuda:2",
        "cuda:0,7": "cuda:7",
        "cuda:GPU-77": "cuda:GPU-77",
        "cuda:GPU-5e1a,MIG-3": "cuda:MIG-3",
        "cuda:banana": "cuda:banana",
        "cuda:-1": "cuda:-1",
        "cuda:0-1": "cuda:0-1",
    }
    known = "cuda:GPU-5e1a (NVIDIA H100 80GB HBM3), cuda:GPU-5e99 (NVIDIA H100 80GB HBM3)"
    for spec, missing in table.items():
        with pytest.raises(UsageError, match=f"no device {missing}\n") as raised:
            find([spec])
        assert raised.value.cure.endswith(known)


def test_the_beginning_of_two_uuids_names_neither(gpus):
    with pytest.raises(UsageError, match="cuda:GPU-5e names 2 devices") as raised:
        find(["cuda:0,GPU-5e"])
    assert "cuda:GPU-5e99 (NVIDIA H100" in raised.value.cure


def test_an_invalid_specification_is_a_usage_error():
    others = ("", "gpu", "fake", "fake:", "cpu:0", "auto:1", "CUDA", "0")
    for spec in (*others, "cuda:", "cuda:0,", "cuda:,0", "cuda:0, ,1"):
        with pytest.raises(UsageError, match="no device can be named") as raised:
            find([spec])
        assert "cuda:0,2" in raised.value.cure
        assert "fake:script.json" in raised.value.cure


def test_a_fake_is_known_by_the_absolute_path_of_its_script(monkeypatch, script):
    monkeypatch.chdir(script.parent)
    (info,) = find([f"fake:{script.name}", f"fake:{script}"])
    assert (info.uuid, info.spec) == ("FAKE-7", f"fake:{script}")
    device = open_device(info.spec)
    assert device.info == info
    device.close()


def test_open_device_opens_the_named_device(gpus, cpu):
    assert open_device("cuda:1", b"cubin") == "opened ('GPU-5e99', b'cubin')"
    assert open_device("cpu") == "the opened a processor"
    with pytest.raises(UsageError, match="names 2 devices"):
        open_device("cuda")


@pytest.mark.parametrize("kind", ["GPU", "MIG"])
def test_a_worker_that_sees_one_gpu_opens_it_without_a_search(monkeypatch, gpus, kind):
    uuid = f"{kind}-5e1a0000-1111-2222-3333-444455556666"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", uuid)
    install_command(monkeypatch, "cuda.listing")  # a search would fail
    assert open_device(f"cuda:{uuid}", b"cubin") == f"opened ({uuid!r}, b'cubin')"


def test_a_gpu_visible_by_number_or_partial_uuid_is_searched_for(monkeypatch, gpus):
    for visible in ("0", "GPU-5e1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert open_device(f"cuda:{visible}") == "opened ('GPU-5e1a', b'')"


def test_opening_without_pycuda_is_an_error(monkeypatch):
    import_fails(monkeypatch, ModuleNotFoundError("No module named 'pycuda'", name="pycuda"))
    uuid = "GPU-5e1a0000-1111-2222-3333-444455556666"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", uuid)
    with pytest.raises(NoDeviceError, match="PyCUDA, which is not installed"):
        open_device(f"cuda:{uuid}")


def test_gpus_in_mig_mode_are_found_as_their_instances(monkeypatch, gpus):
    instance = replace(FIRST, spec="cuda:MIG-7", uuid="MIG-7", model="NVIDIA H100 80GB HBM3 MIG 1g.10gb")
    monkeypatch.setattr("perfsvc.device.find.add_hidden_devices", lambda shown: [*shown[:1], instance])
    assert find(["cuda"]) == [FIRST, instance]
    assert find(["cuda:1"]) == find(["cuda:mig-"]) == [instance]


def test_looking_for_a_fake_imports_no_other_device(script):
    program = (
        "import sys; from perfsvc.device.find import find; find([sys.argv[1]]); "
        "names = ('cpu', 'cuda', 'telemetry'); "
        "print([m for m in ('pycuda', 'pynvml', *('perfsvc.device.' + n for n in names)) if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program, f"fake:{script}"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
