"""Find the devices that a specification names, and open one. A heavy package is imported only if a device needs it.

CUDA hides devices: a process sees only one MIG instance, and perhaps no whole GPU in addition. A process whose
``CUDA_VISIBLE_DEVICES`` names one device sees only this device. So NVML lists the devices. For each device that this
process does not see, another process describes the device by running this module as a program.
"""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perfsvc.device import VISIBLE, groups
from perfsvc.device.protocol import Device
from perfsvc.errors import NoDeviceError, UsageError
from perfsvc.installation import install_command
from perfsvc.model import JOINS_GPUS, DeviceInfo, codec
from perfsvc.process.programs import python_module

if TYPE_CHECKING:
    from perfsvc.device.telemetry import InstalledGpu

_ORDINAL = re.compile(r"\d+")
_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FORMS = (
    "auto, cpu, cuda, cuda:0, cuda:0,2, cuda:0+1, cuda:GPU-… or cuda:MIG-… (UUIDs or how they begin), fake:script.json"
)
_DESCRIBE_LIMIT_S = 60.0  # describing a device takes about a second, and longer while the driver starts


def find(specs: Sequence[str]) -> list[DeviceInfo]:
    """Return the devices that the specifications name, each once, in the order they are named.

    Args:
        specs: ``auto`` (every CUDA device, else the CPU), ``cpu``, ``cuda`` (every CUDA device), ``fake:PATH``, or
            ``cuda:`` followed by numbers (positions in ``find(["cuda"])``) and UUIDs, separated by commas. A UUID is
            ``GPU-…`` or ``MIG-…``, whole or its beginning. ``+`` joins GPUs, CPU devices or paths to a group.

    Raises:
        UsageError: a specification has no known form, or its number or UUID names no device or several devices; the
            error lists the choices.
        NoDeviceError: this machine has no device of the named kind; the error gives the reason.
    """
    infos = {info.spec: info for spec in specs for info in _find(spec)}
    return list(infos.values())


def why_no_gpu() -> str:
    """Return why ``auto`` means the CPU device on this machine; empty if ``auto`` means GPUs."""
    try:
        _cuda()
    except NoDeviceError as error:
        return error.what
    return ""


def open_device(spec: str, helper_kernels: bytes = b"") -> Device:
    """Open the device that a specification names.

    Args:
        spec: ``auto``, ``cpu``, ``cuda``, ``fake:PATH``, or ``cuda:`` followed by a number or a UUID.
        helper_kernels: the binary of perfsvc's helper kernels for the device; empty if the device needs none.

    Raises:
        UsageError: the specification has no known form, or does not name exactly one device.
        NoDeviceError: the device is missing, or cannot be opened.
    """
    visible = os.environ.get(VISIBLE, "")
    uuids = visible.split(",")
    if spec == f"cuda:{JOINS_GPUS.join(uuids)}" and all(map(_UUID.fullmatch, uuids)):
        return _open_cuda(uuids, helper_kernels)  # this is a worker, which sees no other device and need not search
    infos = find([spec])
    if len(infos) != 1:
        raise UsageError(f"{spec} names {len(infos)} devices", cure="name one: " + _listed(infos))
    (info,) = infos
    if info.kind == "cuda":
        return _open_cuda(info.members, helper_kernels)
    if info.kind == "cpu":
        from perfsvc.device.cpu import CpuDevice

        return CpuDevice(info)
    from perfsvc.device.fake import FakeDevice

    return FakeDevice(Path(_fake_paths(info.spec.removeprefix("fake:"))[0]), info)


def _open_cuda(uuids: Sequence[str], helper_kernels: bytes) -> Device:
    """Open a GPU or a group; raise ``NoDeviceError`` if PyCUDA cannot be imported or a GPU cannot be opened."""
    try:
        from perfsvc.device.cuda.device import CudaDevice
    except ImportError as error:
        raise _import_failure(error) from error
    if len(uuids) > 1:
        from perfsvc.device.cuda.group import CudaGroup

        return CudaGroup(uuids, helper_kernels)
    return CudaDevice(uuids[0], helper_kernels)


def _find(spec: str) -> list[DeviceInfo]:
    """Return the devices that one specification names."""
    match spec.partition(":"):
        case "auto", "", _:
            try:
                return _cuda()
            except NoDeviceError:
                return _cpu()
        case kinds, "", _ if set(kinds.split(JOINS_GPUS)) == {"cpu"}:
            return _joined(_cpu() * len(kinds.split(JOINS_GPUS)))
        case "cuda", "", _:
            return _cuda()
        case "cuda", _, names if all(name.strip() for name in names.split(",")):
            infos = _cuda()
            return [
                info
                for joined in names.split(",")
                for info in _joined([_named(infos, name.strip()) for name in joined.split(JOINS_GPUS)])
            ]
        case "fake", _, path if path:
            from perfsvc.device import fake

            return _joined([fake.describe(Path(each).absolute()) for each in _fake_paths(path)])
        case _:
            raise UsageError(f"no device can be named {spec!r}", cure=f"name one of: {_FORMS}")


def _fake_paths(path: str) -> list[str]:
    """Return the paths of the scripts of a fake device or group; the second and all further paths begin with ``/``."""
    first, *others = path.split(f"{JOINS_GPUS}/")
    return [first, *(f"/{other}" for other in others)]


def _joined(infos: Sequence[DeviceInfo]) -> list[DeviceInfo]:
    """Return one device for several: the device itself, or a group.

    Raises:
        UsageError: the devices differ in their model, or one of them is named twice.
    """
    if len(infos) == 1:
        return list(infos)
    names = ", ".join(info.spec for info in infos)
    if len({info.model for info in infos}) > 1:
        raise UsageError(f"{names} are GPUs of several models", cure="join GPUs of one model")
    if infos[0].kind != "cpu" and len({info.uuid for info in infos}) < len(infos):
        raise UsageError(f"{names} names a GPU twice", cure="name each GPU of a group once")
    return [groups.best_group(infos, len(infos), interconnect_of(infos[0].kind))]


def interconnect_of(kind: str) -> groups.Interconnect:
    """Return the function that returns what connects two devices of a kind; only GPUs have a connection."""
    if kind == "cuda":
        from perfsvc.device.links import interconnect

        return interconnect
    return lambda _first, _second: ""


def _cpu() -> list[DeviceInfo]:
    from perfsvc.device import cpu

    return [cpu.describe()]


def _cuda() -> list[DeviceInfo]:
    """Return every CUDA device, at least one; raises ``NoDeviceError`` with the reason if there is none."""
    try:
        from perfsvc.device.cuda.listing import devices
    except ImportError as error:
        raise _import_failure(error) from error
    if infos := add_hidden_devices(devices()):
        return infos
    raise NoDeviceError(
        "the CUDA driver lists no device", cure="see whether nvidia-smi lists one; check CUDA_VISIBLE_DEVICES"
    )


def _import_failure(error: ImportError) -> NoDeviceError:
    """Return the error that explains why PyCUDA cannot be imported."""
    if isinstance(error, ModuleNotFoundError) and error.name and error.name.partition(".")[0] == "pycuda":
        return NoDeviceError("CUDA devices need PyCUDA, which is not installed", cure=install_command("cuda"))
    if "libcuda" in str(error):
        return NoDeviceError(
            f"there is no NVIDIA driver on this machine ({error})",
            cure="install NVIDIA's driver; in a container, start it with --gpus all",
        )
    return NoDeviceError(
        f"PyCUDA cannot be loaded: {error}",
        cure="build it again for this machine's CUDA toolkit: pip install --force-reinstall --no-cache-dir pycuda",
    )


def _named(infos: Sequence[DeviceInfo], name: str) -> DeviceInfo:
    """Return the device whose number is ``name``, or whose UUID begins with ``name``."""
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


# --- devices that CUDA hides -----------------------------------------------------------------------------------------


def add_hidden_devices(shown: Sequence[DeviceInfo]) -> list[DeviceInfo]:
    """Return every CUDA device that this process may use; a GPU in MIG mode is replaced by its instances.

    The devices have the order of the GPUs on the PCI bus, or of the variable ``CUDA_VISIBLE_DEVICES`` if it is set. In
    this variable, the number or UUID of a GPU stands for all of the GPU's instances. A device that cannot be described
    is omitted.

    Args:
        shown: the devices that CUDA shows to this process.
    """
    visible = os.environ.get(VISIBLE)
    if visible == ",".join(info.uuid for info in shown):
        return list(shown)  # nothing is hidden, so NVML, which takes time to start, is not needed
    from perfsvc.device import telemetry

    installed = telemetry.installed_gpus()
    if not any(gpu.is_instance for gpu in installed):
        return list(shown)
    usable = [gpu.uuid for gpu in (installed if visible is None else _visible(installed, visible.split(",")))]
    known = {info.uuid: info for info in shown}
    known |= {info.uuid: info for info in _describe_in_processes(uuid for uuid in usable if uuid not in known)}
    return [known[uuid] for uuid in usable if uuid in known]


def _visible(installed: "Sequence[InstalledGpu]", entries: Iterable[str]) -> "list[InstalledGpu]":
    """Return the GPUs that the entries of ``CUDA_VISIBLE_DEVICES`` name, up to the first wrong entry, as CUDA does."""
    visible: dict[str, InstalledGpu] = {}
    for entry in entries:
        named = [gpu for gpu in installed if _names(entry.strip(), gpu)]
        if not named:
            break
        visible |= {gpu.uuid: gpu for gpu in named}
    return list(visible.values())


def _names(entry: str, gpu: "InstalledGpu") -> bool:
    """Return whether an entry of ``CUDA_VISIBLE_DEVICES`` names a GPU or instance, by number or by start of UUID.

    The number or UUID of a GPU also names all of its instances.
    """
    if entry.isdecimal():
        return int(entry) == gpu.ordinal
    return bool(entry) and any(uuid.lower().startswith(entry.lower()) for uuid in (gpu.uuid, gpu.gpu_uuid))


def _describe_in_processes(uuids: Iterable[str]) -> Iterator[DeviceInfo]:
    """Start a process for each device, which sees only this device, and yield the description that it prints."""
    processes = [
        subprocess.Popen(
            python_module("perfsvc.device.find"),
            env=os.environ | {VISIBLE: uuid},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for uuid in uuids
    ]
    for process in processes:
        with process, contextlib.suppress(subprocess.TimeoutExpired):
            try:
                printed, _ = process.communicate(timeout=_DESCRIBE_LIMIT_S)
            finally:
                process.kill()
            if process.returncode == 0:
                yield codec.decode(DeviceInfo, printed)


def main() -> int:
    """Print the one device that this process sees, as JSON; return the process's exit status."""
    from perfsvc.device.cuda.listing import devices

    (info,) = devices()
    sys.stdout.buffer.write(codec.encode(info))
    return 0


if __name__ == "__main__":
    sys.exit(main())
