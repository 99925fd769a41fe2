"""Record the full environment of a run: the settings of its GPUs, its host and its software.

Nothing here raises: a part that the system does not report is absent.
"""

import contextlib
import hashlib
import importlib.util
import os
import platform
import re
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from perfsvc import __version__, installation
from perfsvc.device.cpu import processor_model
from perfsvc.device.telemetry import settings_of_gpu
from perfsvc.model import DeviceInfo, Environment, FullEnvironment
from perfsvc.suite.python_source import imports
from perfsvc.text import url_without_password

if TYPE_CHECKING:  # agents on other hosts import this module: they need neither the store nor pandas
    from perfsvc.service.prepare.targets import Target

VARIABLES = re.compile(r"(CUDA|NCCL|OMP|TORCH|TRITON)_\w+", re.ASCII)
"""The names of the environment variables that are recorded."""
SECRETS = re.compile(r"(AUTH|CREDENTIAL|KEY|PASSW|SECRET|TOKEN)", re.IGNORECASE)
"""Parts of the names of variables whose values are hidden."""
HIDDEN = "***"
MOST_VARIABLES = 200
LONGEST_VALUE = 300
"""Characters of a recorded value; a longer value is cut, and a digest of it is added."""

RemoteParts = tuple[Mapping[str, str], Mapping[str, str]]
"""The parts of a host and its software, and those of one GPU of the host."""

_ROOT = Path("/")
_USER = re.compile(r"://[^/\s@]*@")
_V1_UNLIMITED_BYTES = 1 << 60
"""Version 1 of cgroups writes "no limit" as a number of almost 2^63 bytes."""


def full_environment(
    targets: "Iterable[Target]",
    environments: Mapping[str, Environment],
    remote: Mapping[str, RemoteParts] | None = None,
) -> FullEnvironment:
    """Return the full environment of a run that starts now.

    Args:
        targets: the devices of the run with their cases and compilers.
        environments: what is already known about each device, by UUID.
        remote: the parts of each device of other hosts, by UUID: those of its host, and its own. What all hosts have in
            common is common; the rest belongs to the devices. A device that is absent has no environment: its host did
            not answer, so the device measures nothing. None if all devices are of this host.
    """
    targets = tuple(target for target in targets if remote is None or target.device.uuid in remote)
    if remote is None:
        common = _recorded(common_parts(benches_of(targets)))
        own = {target.device.uuid: gpu_parts(target.device) for target in targets}
    else:
        hosts = [remote[target.device.uuid][0] for target in targets]
        common = _recorded(dict(set.intersection(*(set(host.items()) for host in hosts)) if hosts else {}))
        own = {
            target.device.uuid: {
                **{name: part for name, part in host.items() if name not in common},
                **remote[target.device.uuid][1],
            }
            for target, host in zip(targets, hosts, strict=True)
        }
    devices = {
        target.device.uuid: _recorded(own[target.device.uuid] | _known_parts(target, environments[target.device.uuid]))
        for target in targets
    }
    return FullEnvironment(common, devices)


def benches_of(targets: "Iterable[Target]") -> dict[str, Path]:
    """Return the texts of the benchmark files of a run, with their folders."""
    return {spec.bench_text: spec.bench.parent for target in targets for spec in target.specs}


def common_parts(benches: Mapping[str, Path]) -> dict[str, str]:
    """Return the parts that all devices of this host share; ``benches`` as in ``package_parts``."""
    software = {"software.perfsvc": __version__, "software.python": platform.python_version()}
    return host_parts() | software | package_parts(benches) | variable_parts(os.environ)


def gpu_parts(device: DeviceInfo) -> dict[str, str]:
    """Return the settings of a GPU of this host as parts; empty for any other device."""
    return settings_of_gpu(device.members[0]) if device.kind == "cuda" else {}


def _recorded(parts: Mapping[str, str]) -> dict[str, str]:
    """Return the parts that are known, sorted by name, each of at most about ``LONGEST_VALUE`` characters."""
    return {name: _bounded(value) for name, value in sorted(parts.items()) if value or name.startswith("variable.")}


def _bounded(value: str) -> str:
    value = value.encode("utf-8", "backslashreplace").decode()  # a variable may hold bytes that are no UTF-8
    if len(value) <= LONGEST_VALUE:
        return value
    digest = hashlib.sha256(value.encode()).hexdigest()[:12]
    return f"{value[:LONGEST_VALUE]}… ({len(value)} characters, SHA-256 {digest}…)"


def _known_parts(target: "Target", environment: Environment) -> dict[str, str]:
    return {
        "gpu.interconnect": target.device.interconnect,
        "gpu.power_limit": f"{environment.power_limit_w:g} W" if environment.power_limit_w else "",
        "run.places": str(environment.places),
        "software.driver": environment.driver,
        "software.toolkit": environment.toolkit,
    }


# --- software --------------------------------------------------------------------------------------------------------


def variable_parts(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the recorded environment variables as parts (``variable.CUDA_VISIBLE_DEVICES``).

    Passwords in URLs are hidden, and so is each value whose name looks like that of a secret.
    """
    names = islice(sorted(filter(VARIABLES.fullmatch, environment)), MOST_VARIABLES)
    return {
        f"variable.{_bounded(name)}": HIDDEN if SECRETS.search(name) else _without_secrets(environment[name])
        for name in names
    }


def _without_secrets(value: str) -> str:
    return _USER.sub(f"://{HIDDEN}@", url_without_password(value))


def package_parts(benches: Mapping[str, Path]) -> dict[str, str]:
    """Return the versions of perfsvc's packages and of the packages that benchmark files import, as parts.

    Args:
        benches: the texts of the benchmark files, and their folders. Modules in these folders are searched for imports
            too.
    """
    versions = installation.versions((*installation.REQUIRED, *installation.OPTIONAL))
    for name in _imported(benches):
        for package in _packages_of(name):
            versions[package] = installation.version(package)
    return {f"package.{name}": version for name, version in versions.items()}


def _imported(benches: Mapping[str, Path]) -> set[str]:
    """Return the top-level modules that texts import, and that the modules in their folders import."""
    names: set[str] = set()
    texts = list(benches.items())
    seen: set[Path] = set()
    while texts:
        text, folder = texts.pop()
        for top in {name.partition(".")[0] for name in imports(text, None)} - sys.stdlib_module_names:
            names.add(top)
            module = folder / f"{top}.py"
            if module not in seen:
                seen.add(module)
                if source := _text(module):
                    texts.append((source, folder))
    return names - {"perfsvc"}


@cache
def _packages_of(module: str) -> tuple[str, ...]:
    """Return the packages that installed a top-level module; empty if none is known.

    Many packages have the name of their module. Reading the file lists of all other packages would take a second, so
    this function finds only packages whose name contains the name of the module, and packages that list their modules.
    """
    if installation.version(module):
        return (module,)
    spec = None
    with contextlib.suppress(Exception):  # finders that packages install may raise anything
        spec = importlib.util.find_spec(module)
    locations = [*(spec.submodule_search_locations or ()), spec.origin or ""] if spec else []
    infos = sorted(Path(locations[0]).parent.glob("*.dist-info")) if locations and locations[0] else []
    in_its_files = re.compile(rf"^{re.escape(module)}[./]", re.MULTILINE)
    named = [info for info in infos if module.lower() in _package(info).lower().replace("-", "_")]
    found = [info for info in named if in_its_files.search(_text(info / "RECORD"))] or [
        info for info in infos if module in _text(info / "top_level.txt").split()
    ]
    return tuple(map(_package, found))


def _package(info: Path) -> str:
    """Return the package of a folder such as ``cupy_cuda12x-13.4.1.dist-info``: ``cupy-cuda12x``."""
    return info.name.removesuffix(".dist-info").rpartition("-")[0].replace("_", "-")


# --- host ------------------------------------------------------------------------------------------------------------


def host_parts(root: Path = _ROOT) -> dict[str, str]:
    """Return the parts about this host. ``root`` is the folder with ``proc`` and ``sys``."""
    cpus, memory_bytes = _limits(root)
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0
    return {
        "host.cpu": processor_model(),
        "host.cpu_limit": f"{cpus:g}" if cpus is not None else "",
        "host.cpus": str(processors or ""),
        "host.governor": _governor(root),
        "host.kernel": platform.release(),
        "host.memory_limit": f"{memory_bytes / (1 << 30):.4g} GiB" if memory_bytes is not None else "",
        "host.name": socket.gethostname(),
        "host.numa_nodes": _numa_nodes(root),
    }


def _governor(root: Path) -> str:
    """Return the governors of all processors, each once, such as ``performance``."""
    policies = (root / "sys/devices/system/cpu/cpufreq").glob("policy*/scaling_governor")
    return ", ".join(sorted({_text(policy).strip() for policy in policies} - {""}))


def _numa_nodes(root: Path) -> str:
    """Return the number of NUMA nodes from a list such as ``0-1,3``."""
    listed = _text(root / "sys/devices/system/node/online").strip()
    nodes = 0
    for item in filter(None, listed.split(",")):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", item, re.ASCII)
        if match is None:
            return ""
        nodes += int(match[2] or match[1]) - int(match[1]) + 1
    return str(nodes or "")


def _limits(root: Path) -> tuple[float | None, int | None]:
    """Return how many processors' time and how many bytes the cgroups of this process allow; None without a limit.

    A group may use no more than each group around it, so the smallest limit counts.
    """
    cpus, memory = [], []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        base = root / "sys/fs/cgroup" / controllers
        for folder in _groups(base, path):
            if not controllers:
                cpus.append(_share(_text(folder / "cpu.max")))
                memory.append(_whole(_text(folder / "memory.max")))
            if "cpu" in controllers.split(","):
                quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
                cpus.append(_share(f"{quota} {period}"))
            if "memory" in controllers.split(","):
                memory.append(_whole(_text(folder / "memory.limit_in_bytes")))
    return (
        min((limit for limit in cpus if limit), default=None),
        min((limit for limit in memory if limit and limit < _V1_UNLIMITED_BYTES), default=None),
    )


def _groups(base: Path, path: str) -> Iterator[Path]:
    """Yield the folder of a cgroup and the folders of the groups around it, up to ``base``.

    Inside a container, the path may name a folder that exists only outside. Then only ``base`` has files.
    """
    parts = [part for part in path.split("/") if part]
    for length in range(0 if ".." in parts else len(parts), -1, -1):
        yield base.joinpath(*parts[:length])


def _share(text: str) -> float | None:
    """Return the quotient of a quota and a period, such as 2.0 for ``200000 100000``; None without a quota."""
    match = re.fullmatch(r"(\d+)\s+(\d+)", text.strip(), re.ASCII)
    return int(match[1]) / int(match[2]) if match and int(match[2]) else None


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,30}", text.strip(), re.ASCII) else None


def _text(path: Path) -> str:
    """Return the text of a file; empty if it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""
