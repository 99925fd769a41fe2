"""Check what perfsvc needs on this machine, with a cure for everything that is missing: ``perfsvc doctor``."""

import ctypes
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from types import MappingProxyType

from perfsvc import installation
from perfsvc.build import Cache, toolchain_for
from perfsvc.build.disassembly import Disassembler, find_nvdisasm
from perfsvc.build.nvcc import NvccToolchain
from perfsvc.device import telemetry
from perfsvc.device.find import find, interconnect_of
from perfsvc.errors import (
    MissingPackageError,
    NoCompilerError,
    NoDeviceError,
    NoDisassemblerError,
    NoProfilerError,
    PerfsvcError,
)
from perfsvc.installation import install_command, reinstall_command
from perfsvc.model import DeviceInfo
from perfsvc.profile.commands import PERMIT, NcuProfiler
from perfsvc.profile.profiler import counters_readable
from perfsvc.profile.reports import require_ncu_report
from perfsvc.report.rows import CheckRow
from perfsvc.service import git

GPUS = "GPUs"
"""The check that fails if there is no GPU."""

_VERSION = re.compile(r"\d+(?:\.\d+)+")


def devices() -> list[DeviceInfo]:
    """Return every device of this machine: the usable GPUs and the CPU device."""
    return [*_usable_gpus(), *find(["cpu"])]


def _usable_gpus() -> list[DeviceInfo]:
    """Return the GPUs that can be used; an empty list if there is none."""
    try:
        return find(["cuda"])
    except NoDeviceError:
        return []


def links(devices: Sequence[DeviceInfo]) -> dict[tuple[str, str], str]:
    """Return what connects each two GPUs of one model, by their specifications; an unknown connection is left out."""
    between = {
        (first.spec, second.spec): interconnect_of(first.kind)(first.uuid, second.uuid)
        for first, second in combinations(devices, 2)
        if first.model == second.model
    }
    return {pair: link for pair, link in between.items() if link}


def toolkit(device: DeviceInfo) -> str:
    """Return name and version of the compiler for a device; empty if this machine has none."""
    try:
        return toolchain_for(device.target).version
    except NoCompilerError:
        return ""


def checkup(
    database: str | None,
    targets: Mapping[str, str] = MappingProxyType({}),
    heartbeat: str = "",
    suite: Path | None = None,
) -> list[CheckRow]:
    """Check everything that perfsvc uses, and return a row for each check. Raises nothing: an error becomes a row.

    Tools for GPUs are required if there is an NVIDIA driver, and optional otherwise.

    Args:
        database: the database to check, as a path or URL; None to skip it.
        targets: the message targets of a night, each with the environment variable that holds its address.
        heartbeat: the environment variable that holds the URL of a night's heartbeat; empty for no heartbeat.
        suite: the folder of benchmarks, whose repository git must be able to read; None to skip it.
    """
    gpu = _has_driver()
    checks: list[tuple[str, Callable[[], Iterator[CheckRow]]]] = [
        ("Python", _python),
        ("packages", _packages),
        ("C++ compiler", _host_compiler),
        ("CUDA driver", lambda: _driver(present=gpu)),
        ("NVML", _nvml),
        ("PyCUDA", lambda: _pycuda(needed=gpu)),
        ("nvcc", lambda: _nvcc(needed=gpu)),
        ("nvdisasm", _nvdisasm),
        ("Nsight Compute", _ncu),
        (GPUS, lambda: _gpus(needed=gpu)),
        ("telemetry", _telemetry),
        ("CPU device", _cpu),
        ("build cache", _cache),
        ("git", _git),
        ("repository", lambda: _repository(suite)),
        ("key", _key),
        ("messages", lambda: _messages(targets)),
        ("heartbeat", lambda: _heartbeat(heartbeat)),
        ("pages", _pages),
    ]
    if database is not None:
        checks.append(("database", lambda: _database(database)))
    return [row for name, find_rows in checks for row in _rows(name, find_rows)]


def _rows(name: str, find_rows: Callable[[], Iterator[CheckRow]]) -> Iterator[CheckRow]:
    """Yield the rows that a check finds; if the check raises an exception, a row with the error and its cure."""
    try:
        yield from find_rows()
    except PerfsvcError as error:
        yield CheckRow(name, ok=False, found=error.what, cure=error.cure)
    except Exception as error:  # noqa: BLE001 - a broken installation may raise anything
        yield CheckRow(name, ok=False, found=f"{type(error).__name__}: {error}", cure=reinstall_command())


def _absent(name: str, found: str, cure: str, *, needed: bool) -> CheckRow:
    return CheckRow(name, ok=False if needed else None, found=found, cure=cure)


def _python() -> Iterator[CheckRow]:
    yield CheckRow("Python", ok=True, found=f"{platform.python_version()} ({sys.executable})")


def _packages() -> Iterator[CheckRow]:
    """Check that all required packages are installed, and list their versions."""
    versions = installation.versions(installation.REQUIRED)
    missing = [package for package in installation.REQUIRED if package not in versions]
    if missing:
        yield CheckRow("packages", ok=False, found="missing: " + ", ".join(missing), cure=reinstall_command())
    else:
        yield CheckRow("packages", ok=True, found=", ".join(f"{name} {version}" for name, version in versions.items()))


def _host_compiler() -> Iterator[CheckRow]:
    yield CheckRow("C++ compiler", ok=True, found=toolchain_for(f"cpu-{platform.machine()}").version)


def _has_driver() -> bool:
    """Return whether NVIDIA's driver library can be loaded."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def _driver(*, present: bool) -> Iterator[CheckRow]:
    """Check NVIDIA's driver, which is optional."""
    if present:
        yield CheckRow("CUDA driver", ok=True, found=telemetry.driver_version() or "of unknown version")
    else:
        cure = "install NVIDIA's driver to measure on a GPU; in a container, start it with --gpus all"
        yield CheckRow("CUDA driver", ok=None, found="not installed", cure=cure)


def _nvml() -> Iterator[CheckRow]:
    """Check NVML, which reports the driver and the state of a GPU; it is optional."""
    if version := telemetry.driver_version():
        yield CheckRow("NVML", ok=True, found=f"answers for driver {version}")
    elif installed := installation.version("nvidia-ml-py"):
        yield CheckRow("NVML", ok=None, found=f"nvidia-ml-py {installed}, but no driver answers", cure="see nvidia-smi")
    else:
        cure = f"{install_command('cuda')}, to record driver, power limit and the state of a GPU while it is measured"
        yield CheckRow("NVML", ok=None, found="nvidia-ml-py is not installed", cure=cure)


def _pycuda(*, needed: bool) -> Iterator[CheckRow]:
    """Check that PyCUDA is installed; ``needed`` says whether its absence is a fault."""
    if version := installation.version("pycuda"):
        yield CheckRow("PyCUDA", ok=True, found=version)
    else:
        yield _absent("PyCUDA", "not installed", install_command("cuda"), needed=needed)


def _nvcc(*, needed: bool) -> Iterator[CheckRow]:
    """Check that there is an nvcc, and that it builds for each GPU."""
    targets = sorted({gpu.target for gpu in _usable_gpus()})
    try:
        compiler = NvccToolchain(targets[0] if targets else "sm_90")
    except NoCompilerError as error:
        yield _absent("nvcc", error.what, error.cure, needed=needed)
        return
    yield CheckRow("nvcc", ok=True, found=f"{compiler.version} ({compiler.path})")
    for target in targets:
        ok = target in compiler.targets
        cure = "" if ok else "install a CUDA toolkit that knows this GPU and put its nvcc on PATH"
        yield CheckRow(f"nvcc for {target}", ok=ok, found="supported" if ok else "not supported", cure=cure)


def _nvdisasm() -> Iterator[CheckRow]:
    """Check the disassembler; without it, a check lacks instruction counts and the lines of local memory."""
    cure = f"to count instructions and to find the lines of spills in perfsvc check: {install_command('nvcc')}"
    path = find_nvdisasm()
    if path is None:
        yield CheckRow("nvdisasm", ok=None, found="not found", cure=cure)
        return
    try:
        yield CheckRow("nvdisasm", ok=True, found=f"{Disassembler(path, Cache()).version} ({path})")
    except NoDisassemblerError as error:
        yield CheckRow("nvdisasm", ok=None, found=error.what, cure=cure)


def _gpus(*, needed: bool) -> Iterator[CheckRow]:
    """List the GPUs that can be used; ``needed`` says whether it is a fault if there is none."""
    try:
        gpus = find(["cuda"])
    except NoDeviceError as error:
        yield _absent(GPUS, error.what, error.cure, needed=needed)
        return
    for gpu in gpus:
        found = f"{gpu.model}, compute capability {gpu.compute_capability}, --device {gpu.spec}"
        yield CheckRow("GPU", ok=True, found=found)


def _telemetry() -> Iterator[CheckRow]:
    """Check which readings NVML gives for each GPU, such as the clocks; no row without a GPU."""
    for gpu in _usable_gpus():
        answers = telemetry.available_readings(gpu.uuid)
        reported = ", ".join(topic for topic, answered in answers.items() if answered) or "nothing"
        missing = ", ".join(topic for topic, answered in answers.items() if not answered)
        if missing:
            cure = "in a container, let NVIDIA_DRIVER_CAPABILITIES name utility as well as compute; else nothing"
            yield CheckRow(
                "telemetry", ok=None, found=f"{gpu.spec} reports {reported}; it does not report {missing}", cure=cure
            )
        else:
            yield CheckRow("telemetry", ok=True, found=f"{gpu.spec} reports {reported}")


def _cpu() -> Iterator[CheckRow]:
    (cpu,) = find(["cpu"])
    yield CheckRow("CPU device", ok=True, found=f"{cpu.model} ({cpu.target})")


def _ncu() -> Iterator[CheckRow]:
    """Check for Nsight Compute, and whether this user may read GPU counters; only explanations need these."""
    try:
        profiler = NcuProfiler()
        require_ncu_report()
    except (NoProfilerError, MissingPackageError) as error:
        yield CheckRow("Nsight Compute", ok=None, found=error.what, cure=f"to learn why times change: {error.cure}")
    else:
        version = profiler.version or "of unknown version"
        yield CheckRow("Nsight Compute", ok=True, found=f"{version} ({profiler.path})")
    match counters_readable():
        case True:
            yield CheckRow("GPU counters", ok=True, found="this user may read them")
        case False:
            yield CheckRow("GPU counters", ok=None, found="the driver does not let this user read them", cure=PERMIT)


def _git() -> Iterator[CheckRow]:
    """Check that git is installed; without it, runs do not know the commit that they measured."""
    path = shutil.which("git")
    if path is None:
        cure = "install git, so that runs remember the commit they measured"
        yield CheckRow("git", ok=None, found="not found on PATH", cure=cure)
        return
    arguments = [path, "--version"]
    printed = subprocess.run(arguments, capture_output=True, text=True, timeout=git.LIMIT_S, check=False).stdout
    version = _VERSION.search(printed)
    yield CheckRow("git", ok=True, found=f"{version[0] if version else 'of unknown version'} ({path})")


def _repository(suite: Path | None) -> Iterator[CheckRow]:
    """Check that git can read the repository of the suite; no row if the suite is in no repository."""
    if suite is not None and (why := git.unreadable(suite)):
        found = f"git cannot read the repository of {suite}: {why}. Runs of this suite count as uncommitted changes"
        yield CheckRow("repository", ok=False, found=found, cure=git.unreadable_cure(suite))


def _key() -> Iterator[CheckRow]:
    """Check that perfsvc can read the keys that sign stored code; the first run makes a key."""
    from perfsvc.keys import Keys, fingerprint

    keys = Keys()
    names = [fingerprint(secret) for secret in keys.secrets]
    found = f"{', '.join(names)} ({keys.file})" if names else f"none yet: your first run makes {keys.file}"
    yield CheckRow("key", ok=True, found=found)


def _cache() -> Iterator[CheckRow]:
    yield CheckRow("build cache", ok=True, found=str(Cache().folder))


def _messages(targets: Mapping[str, str]) -> Iterator[CheckRow]:
    """Check that Apprise is installed and that each message target has an address.

    perfsvc sends messages with Apprise, so Apprise is required only if there are targets.
    """
    if version := installation.version("apprise"):
        yield CheckRow("messages", ok=True, found=f"apprise {version}")
    else:
        cure = f"to send messages about a night: {install_command('nightly')}"
        yield _absent("messages", "apprise is not installed", cure, needed=bool(targets))
    for target, variable in targets.items():
        if not os.environ.get(variable, "").strip():
            found, cure = f"the environment variable {variable} is not set", f"set {variable} where nights begin"
            yield CheckRow(f"messages to {target}", ok=False, found=found, cure=cure)


def _heartbeat(variable: str) -> Iterator[CheckRow]:
    """Check that the variable of the heartbeat holds a URL; no row if no heartbeat is configured.

    A missing URL is no fault: nights run without it, but no monitor watches them.
    """
    if variable:
        is_set = bool(os.environ.get(variable, "").strip())
        found = f"the environment variable {variable} is {'set' if is_set else 'not set'}"
        yield CheckRow(
            "heartbeat", ok=is_set or None, found=found, cure="" if is_set else f"set {variable} where nights begin"
        )


def _pages() -> Iterator[CheckRow]:
    """Check that plotly is installed, which the site needs."""
    if version := installation.version("plotly"):
        yield CheckRow("pages", ok=True, found=f"plotly {version}")
    else:
        cure = f"for the site of a night: {install_command('nightly')}"
        yield CheckRow("pages", ok=None, found="plotly is not installed", cure=cure)


def _database(database: str) -> Iterator[CheckRow]:
    """Check the schema of the database; a database that does not exist yet is no fault."""
    from perfsvc.store import Store
    from perfsvc.store.schema.engine import file_of, resolve

    path = file_of(resolve(database))
    if path is not None and not path.exists():
        yield CheckRow("database", ok=None, found=f"there is no {path} yet", cure="perfsvc run makes it")
        return
    state = Store.check(database)
    found = "; ".join(state.problems) or f"{state.url}, schema {state.revision}"
    yield CheckRow("database", ok=state.ok, found=found, cure="" if state.ok else "see perfsvc db check")
    if state.ok:
        from perfsvc.service.run.spool import left_at_another_path, waiting

        with Store.open(database, create=False, read_only=True) as store:
            files, left = waiting(store), left_at_another_path(store)
        if files:
            names = ", ".join(map(str, files))
            yield CheckRow("spools", ok=None, found=f"results wait in {names}", cure="perfsvc run sends them")
        for file, run in left:
            found = f"results of run {run} wait in the spool of a database at another path"
            cure = f"if you moved that database: perfsvc sync {file} {store.location}"
            yield CheckRow("spools", ok=None, found=found, cure=cure)
