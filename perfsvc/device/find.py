"""Which devices a specification means, and how one is opened. Nothing heavy is imported for a device not asked for."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from perfsvc.device.protocol import Device
from perfsvc.errors import NoDeviceError, UsageError
from perfsvc.installation import install_command
from perfsvc.model import DeviceInfo

_ORDINAL = re.compile(r"\d+")
_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FORMS = "auto, cpu, cuda, cuda:0, cuda:0,2, cuda:GPU-… or cuda:MIG-… (UUIDs or how they begin), fake:script.json"


def find(specs: Sequence[str]) -> list[DeviceInfo]:
    """The devices that the specifications name, each once, in the order they are named in.

    Args:
        specs: ``auto`` (every CUDA device, else the CPU), ``cpu``, ``cuda`` (every one), ``fake:PATH``, or ``cuda:``
            and, separated by commas, numbers (as in ``find(["cuda"])``) and UUIDs, ``GPU-…`` or ``MIG-…``, whole or
            how they begin.

    Raises:
        UsageError: a specification that means nothing here, or more than one device where it has to mean one; it names
            the devices that there are.
        NoDeviceError: this machine has no such kind of device, with the reason.
    """
    found = {info.spec: info for spec in specs for info in _find(spec)}
    return list(found.values())


def why_no_gpu() -> str:
    """Why ``auto`` means the CPU device on this machine; empty where it does not."""
    try:
        _cuda()
    except NoDeviceError as error:
        return error.what
    return ""


def open_device(spec: str, helper_kernels: bytes = b"") -> Device:
    """Opens the one device that a specification names; raises as ``find`` does, or ``UsageError`` for several.

    Args:
        spec: as ``find`` takes it.
        helper_kernels: ``perfsvc.device.helper kernels.unit`` compiled for the device, where it needs them.
    """
    if (alone := os.environ.get("CUDA_VISIBLE_DEVICES", "")) and spec == f"cuda:{alone}" and _UUID.fullmatch(alone):
        return _opened(alone, helper_kernels)  # a worker, which sees no other: it need not look for the one
    infos = find([spec])
    if len(infos) != 1:
        raise UsageError(f"{spec} names {len(infos)} devices", cure="name one: " + _listed(infos))
    (info,) = infos
    if info.kind == "cuda":
        return _opened(info.uuid, helper_kernels)
    if info.kind == "cpu":
        from perfsvc.device.cpu import CpuDevice

        return CpuDevice()
    from perfsvc.device.fake import FakeDevice

    return FakeDevice(_script(info.spec))


def _opened(uuid: str, helper_kernels: bytes) -> Device:
    try:
        from perfsvc.device.cuda.device import CudaDevice
    except ImportError as error:
        raise _unloadable(error) from error
    return CudaDevice(uuid, helper_kernels)


def _find(spec: str) -> list[DeviceInfo]:
    match spec.partition(":"):
        case "auto", "", _:
            return _cuda_or_cpu()
        case "cpu", "", _:
            return [_cpu()]
        case "cuda", "", _:
            return _cuda()
        case "cuda", _, names if all(name.strip() for name in names.split(",")):
            infos = _cuda()
            return [_one_of(infos, name.strip()) for name in names.split(",")]
        case "fake", _, path if path:
            from perfsvc.device import fake

            return [fake.describe(Path(path).absolute())]
        case _:
            raise UsageError(f"no device can be named {spec!r}", cure=f"name one of: {_FORMS}")


def _script(spec: str) -> Path:
    return Path(spec.removeprefix("fake:"))


def _cpu() -> DeviceInfo:
    from perfsvc.device import cpu

    return cpu.describe()


def _cuda_or_cpu() -> list[DeviceInfo]:
    try:
        return _cuda()
    except NoDeviceError:
        return [_cpu()]


def _cuda() -> list[DeviceInfo]:
    """Every CUDA device, at least one; raises ``NoDeviceError`` with the reason where there is none."""
    from perfsvc.device import instances

    try:
        from perfsvc.device.cuda.listing import devices
    except ImportError as error:
        raise _unloadable(error) from error
    if infos := instances.complete(devices()):
        return infos
    raise NoDeviceError(
        "the CUDA driver lists no device", cure="see whether nvidia-smi lists one; check CUDA_VISIBLE_DEVICES"
    )


def _unloadable(error: ImportError) -> NoDeviceError:
    if isinstance(error, ModuleNotFoundError) and error.name and error.name.partition(".")[0] == "pycuda":
        return NoDeviceError("CUDA devices need PyCUDA, which is not installed", cure=install_command("cuda"))
    if "libcuda" in str(error):
        return NoDeviceError(
            f"there is no NVIDIA driver on this machine ({error})",
            cure="install NVIDIA's driver; in a container, start it with --gpus all",
        )
    return NoDeviceError(
        f"PyCUDA cannot be loaded: {error}",
        cure="build it anew for this machine's CUDA toolkit: pip install --force-reinstall --no-cache-dir pycuda",
    )


def _one_of(infos: Sequence[DeviceInfo], name: str) -> DeviceInfo:
    """The device with that number, or whose UUID begins so."""
    if _ORDINAL.fullmatch(name):
        matching = list(infos[int(name) : int(name) + 1])
    else:
        matching = [info for info in infos if info.uuid.lower().startswith(name.lower())]
    if not matching:
        raise UsageError(f"there is no device cuda:{name}", cure="name one that is here: " + _listed(infos))
    if len(matching) > 1:
        raise UsageError(f"cuda:{name} names {len(matching)} devices", cure="name one: " + _listed(matching))
    return matching[0]


def _listed(infos: Sequence[DeviceInfo]) -> str:
    return ", ".join(f"{info.spec} ({info.model})" for info in infos)
