"""The worker: opens one device and measures the cases it is sent, until its parent closes the socket.

``perfsvc.process.fork_server`` forks it. Its standard output belongs to the code it measures; its own messages
go over its socket. Each case is loaded, checked, sampled and checked again.
"""

import contextlib
import gc
import hashlib
import importlib
import math
import os
import re
import socket
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from perfsvc import elf
from perfsvc.device import VISIBLE
from perfsvc.device.find import open_device
from perfsvc.device.protocol import Device
from perfsvc.errors import CaseError, LaunchError, PerfsvcError, ResultError, SuiteError
from perfsvc.measure.protocol.messages import (
    CaseJob,
    Measured,
    Open,
    Ready,
    Refused,
    Reply,
    Request,
    problem_of_metric,
    without_samples,
)
from perfsvc.measure.protocol.shared_arrays import MappedArrays
from perfsvc.measure.worker.check import ResultCheck
from perfsvc.measure.worker.memory import CaseMemory, DeviceArrayCache
from perfsvc.measure.worker.packages import triton_compile_s
from perfsvc.measure.worker.program import Functions, Program, load_functions
from perfsvc.measure.worker.sampling import auxiliary
from perfsvc.measure.worker.sampling.batches import SETTLE_S, ClockWatch
from perfsvc.measure.worker.sampling.places import Places
from perfsvc.measure.worker.sampling.sampler import Samples, brief_median_s, bytes_to_evict, take_samples
from perfsvc.model import (
    AUXILIARY,
    TIME,
    Call,
    Kind,
    LibraryCall,
    Measurement,
    Package,
    PythonCode,
    Role,
    Status,
    codec,
)
from perfsvc.process import frames

_CUDA_LIBRARY = re.compile(r"lib(?:cu|nv|nccl)\w*\.so")
_MAPS = Path("/proc/self/maps")


def cuda_libraries(modules: Iterable[bytes], maps: Path = _MAPS) -> PythonCode | None:
    """Return the CUDA libraries that shared objects need and this process has loaded; None if they need none.

    Args:
        modules: the shared objects.
        maps: the list of this process's mapped files.
    """
    needed = {name for code in modules for name in elf.needed_libraries(code) if _CUDA_LIBRARY.match(name)}
    if not needed:
        return None
    try:
        lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # no Linux
        lines = []
    stems = {name.partition(".so")[0] for name in needed}
    paths = {Path(f"/{line.partition('/')[2]}") for line in lines if "/" in line}
    packages = {_package_of(path) for path in paths if path.name.partition(".so")[0] in stems}
    return PythonCode(packages=tuple(sorted(packages, key=lambda package: (package.name, package.version))))


def _package_of(path: Path) -> Package:
    """Return the Python package that installed a library, or else the library with the version in its file's name."""
    for distribution, record in _nvidia_packages():
        root = Path(str(distribution.locate_file(""))).resolve()
        if path.is_relative_to(root) and f"{path.relative_to(root)}," in record:
            name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()
            return Package(name, distribution.version, hashlib.sha256(record.encode()).hexdigest())
    name, _, version = path.resolve().name.partition(".so.")
    return Package(name.removesuffix(".so"), version)


def _nvidia_packages() -> Iterator[tuple[metadata.Distribution, str]]:
    """Yield each of NVIDIA's installed packages with its list of files."""
    for distribution in metadata.distributions():
        if str(distribution.metadata["Name"]).lower().startswith("nvidia"):
            yield distribution, distribution.read_text("RECORD") or ""


NO_ROOM = "the device has no memory left to move them"
CACHE_SHARE = 0.25
"""Share of a device's memory in which inputs and references are kept for later cases."""


def prepare() -> None:
    """Import what workers need, CUDA's packages too if they are installed, and build the codecs of the messages."""
    with contextlib.suppress(ImportError):
        importlib.import_module("perfsvc.device.cuda.device")
        importlib.import_module("pynvml")
    codec.prepare(Request, Reply)


def serve(parent: socket.socket) -> int:
    """Open the device that the first message names, and measure until the socket closes; return the exit status."""
    opening = frames.receive(parent)
    if opening is None:  # the worker is not needed any more
        return 0
    request = codec.decode(Request, opening.text).body
    if isinstance(request, Open) and request.programs_on:
        from perfsvc.measure.worker import executable  # which few workers need

        return executable.serve(parent, request, request.programs_on)
    try:
        device = _open(request, opening.blobs)
    except PerfsvcError as error:
        _send(parent, Refused(error.what, error.cure))
        return error.exit_code
    with contextlib.closing(device):
        # A device that uses the host's memory gains nothing from a copy of the arrays.
        cache = DeviceArrayCache(device, int(CACHE_SHARE * device.info.memory_bytes) if device.queue_depth else 0)
        gc.freeze()  # collections skip what lives as long as the worker
        clock = ClockWatch(device.info.clock_hz)
        lowered = False
        _send(parent, Ready(device.info))
        while (frame := frames.receive(parent)) is not None:
            if lowered:
                device.rest(SETTLE_S)
            reply = _measure_frame(device, frame, cache)
            lowered = clock.lowered_by(reply.measurement.batches)
            _send(parent, reply)
            if not reply.usable:
                break
            # Collect what the case's Python functions left behind. The libraries that they imported stay, and later
            # collections skip them.
            gc.collect()
            gc.freeze()
    return 0


def _open(request: Open | CaseJob, blobs: Sequence[bytes]) -> Device:
    """Open the device that the first message names; raise ``LaunchError`` if the message is a job."""
    if not isinstance(request, Open):
        raise LaunchError("the worker was sent a job before it had a device", cure="report this error of perfsvc")
    if request.visible:
        os.environ[VISIBLE] = request.visible  # before the driver starts, which reads the variable then
    (helper_kernels,) = blobs
    return open_device(request.device, helper_kernels)


def _send(parent: socket.socket, body: Ready | Refused | Measured) -> None:
    """Send a reply; the files of a measurement follow as blobs, not in the text."""
    files: Mapping[str, bytes] = {}
    if isinstance(body, Measured) and body.measurement.files:
        files = body.measurement.files
        body = replace(body, measurement=replace(body.measurement, files={}))
    frames.send(parent, codec.encode(Reply(body)), tuple(files.values()))


def _measure_frame(device: Device, frame: frames.Frame, cache: DeviceArrayCache) -> Measured:
    """Measure the case of a message. An error in perfsvc itself fails the case too, and ends the worker."""
    try:
        job = codec.decode(Request, frame.text).body
        if not isinstance(job, CaseJob):
            raise TypeError(type(job))
        try:
            return measure(device, job, frame.blobs, MappedArrays(frame.descriptors, job), cache)
        except Exception as error:  # noqa: BLE001 - it is reported
            traceback.print_exc()
            failure = LaunchError(
                f"perfsvc itself failed: {type(error).__name__}: {error}",
                cure="report this error with the benchmark file; the run loses no other case",
            )
            measurement = without_samples(job.record.case, device.info.uuid, job.replica, job.cache, failure)
            return Measured(measurement, usable=False)
    finally:
        for descriptor in frame.descriptors:
            os.close(descriptor)


def measure(
    device: Device, job: CaseJob, modules: Sequence[bytes], arrays: MappedArrays, cache: DeviceArrayCache
) -> Measured:
    """Measure one case. If the case fails, its measurement holds the error.

    Args:
        device: an open device.
        job: what to measure.
        modules: the binaries of ``job.record.modules``.
        arrays: the inputs and references of the case.
        cache: keeps the arrays in the device's memory.
    """
    started = time.monotonic()
    places, why_one_place = _places(device, job, arrays, cache)
    try:
        with _watched(job):
            functions = functions_of(job, modules)
        with (
            device.measuring(job.record, job.replica),
            CaseMemory(device, job.record.buffers, make_room=cache.clear, places=places) as memory,
            Program(device, job.record, modules, memory, functions) as program,
        ):
            check = ResultCheck(device, job, arrays, cache, memory, program)
            measurement = _measure(device, job, modules, memory=memory, program=program, check=check, started=started)
            if memory.places < job.sampling.places and job.record.kind is not Kind.HOST:
                note = f"its arrays stayed at one place: {why_one_place or NO_ROOM}"
                measurement = replace(measurement, note="; ".join(filter(None, [measurement.note, note])))
            return Measured(measurement, usable=True, checked=check.checked)
    except (CaseError, SuiteError) as error:
        usable = not (isinstance(error, LaunchError) and error.fatal)
        wall_s = time.monotonic() - started
        measurement = without_samples(job.record.case, device.info.uuid, job.replica, job.cache, error, wall_s=wall_s)
        return Measured(measurement, usable)


def _places(device: Device, job: CaseJob, arrays: MappedArrays, cache: DeviceArrayCache) -> tuple[int, str]:
    """Return at how many places of its arrays a case is measured, and why at one only, or an empty text."""
    if job.sampling.places == 1 or job.record.kind is Kind.HOST:
        return 1, ""
    if not all(call.timed for call in job.record.calls):
        return 1, "a Python function that is called before timing may keep their addresses"
    inputs = sum(array.nbytes for array in arrays.inputs.values())
    if device.queue_depth and not cache.has_room(inputs):
        return 1, f"the device keeps no copy of {inputs} bytes of inputs"
    return job.sampling.places, ""


def _measure(
    device: Device,
    job: CaseJob,
    modules: Sequence[bytes],
    *,
    memory: CaseMemory,
    program: Program,
    check: ResultCheck,
    started: float,
) -> Measurement:
    """Check the result, take the samples, check the result again, and return the measurement."""

    def move(place: int) -> None:
        memory.move(place)
        is_new = program.bind()
        check.load()
        if is_new:
            program.run()
            check.load()
        program.capture(evict_bytes)

    evict_bytes = bytes_to_evict(device, job.sampling, job.cache)
    restore = memory.restore if memory.names(Role.INOUT) else None
    is_host = job.record.kind is Kind.HOST
    if program.packages:
        check.load()
        program.prepare(partial(brief_median_s, device, job.sampling, job.cache, restore=restore))
    runs_once = is_host or bool(job.record.graph)  # later, replays of a graph launch nothing that Python sees
    with _launches(job) if runs_once else contextlib.nullcontext([]) as launched, _watched(job, fresh=False):
        returned = check.before()
    if is_host:
        samples, sampling_s, metrics = Samples(), 0.0, _host_metrics(returned, program.metrics())
    else:
        pipeline = job.record.kind is Kind.PIPELINE  # timed by the host's clock from end to end
        program.capture(evict_bytes)
        sampling_started = time.monotonic()
        samples = take_samples(
            device,
            program.sample if pipeline else program.queue,
            job.sampling,
            clock="host" if pipeline else "device",
            cache=job.cache,
            operations=program.operations,
            places=Places(memory.places, move),
            restore=restore,
            seconds=program.graph.seconds,
        )
        sampling_s = time.monotonic() - sampling_started
        metrics = {**samples.metrics, **program.metrics()}
        if job.record.graph == "replay":
            with program.graph.other(program.timed, apart=True) as graph:
                metrics["steps_s"] = brief_median_s(
                    device, job.sampling, job.cache, graph.launch, restore=restore, seconds=graph.seconds
                )
        if memory.places > 1 and any(isinstance(step, Call | LibraryCall) for step in job.record.steps):
            move(memory.places - 1)  # not the first place: what keeps the addresses of the first call is found out
        # Excludes the launches that a tuner tried before.
        with contextlib.nullcontext(launched) if runs_once else _launches(job) as launched, _naming_moves(job, memory):
            check.after(samples.median_s)
    if job.record.kind is Kind.KERNEL:
        metrics = {**auxiliary.registers(job.record, modules), **metrics}
    metrics |= _compile_s(job, program, launched)
    error = check.error
    python, files, note = _python_code(job, launched, modules)
    metrics |= auxiliary.registers_of_cubins(files.values())
    choices = [step.choice for step in program.packages.values()]
    return Measurement(
        job.record.case,
        device.info.uuid,
        job.replica,
        Status.OK,
        job.cache,
        samples_s=samples.seconds,
        places_s=samples.places_s,
        max_error=error.max if error else None,
        mean_error=error.mean if error else None,
        metrics=metrics,
        stopped=samples.stopped,
        batches=samples.batches,
        warmup=samples.warmup,
        note="; ".join(filter(None, [*choices, samples.note, note])),
        check_s=check.seconds,
        sampling_s=sampling_s,
        busy_s=samples.busy_s,
        wall_s=time.monotonic() - started,
        python=python,
        files=files,
    )


@contextlib.contextmanager
def _naming_moves(job: CaseJob, memory: CaseMemory) -> Iterator[None]:
    """Name the likely cause of a wrong result if the case calls functions and its arrays have moved."""
    try:
        yield
    except ResultError as error:
        calls = [type(step) for step in job.record.steps if isinstance(step, Call | LibraryCall)]
        if memory.places == 1 or not calls:
            raise
        function = "Python function" if Call in calls else "library"
        kept = f"a {function} may keep the arrays or addresses of its first call"
        cure = f"{kept}: use those of each call, or measure at one place with --places 1; if it does not, {error.cure}"
        raise ResultError(f"{error.what}; the result was right before its arrays moved", cure=cure) from error


def _watched(job: CaseJob, *, fresh: bool = True) -> contextlib.AbstractContextManager[None]:
    """Note what the functions of the case use during the block, if it calls Python functions."""
    if not job.record.calls:
        return contextlib.nullcontext()
    from perfsvc import uses  # few cases need it in a worker

    return uses.watched(fresh=fresh)


def _launches(job: CaseJob) -> contextlib.AbstractContextManager[list[Any]]:
    """Collect the kernels that Triton launches during the block, if the case calls Python functions."""
    if not job.record.calls:
        return contextlib.nullcontext([])
    from perfsvc.measure.worker.python_code import launches  # imports the suite, which few cases need in a worker

    return launches()


def _compile_s(job: CaseJob, program: Program, launched: Sequence[Any]) -> dict[str, float]:
    """Return the metric ``compile_s`` of a case with steps of packages; empty for any other case.

    The first replica compiles Triton's kernels once more without Triton's cache. All other times include what a package
    finds in its cache.
    """
    if not program.packages:
        return {}
    compiled_s = triton_compile_s(launched) if job.replica == 0 else None
    others = (step for step in program.packages.values() if compiled_s is None or not step.is_triton)
    return {"compile_s": (compiled_s or 0.0) + sum(step.compile_s for step in others)}


def _python_code(
    job: CaseJob, launched: Sequence[Any], modules: Sequence[bytes]
) -> tuple[PythonCode | None, Mapping[str, bytes], str]:
    """Return what a case ran with: its ``PythonCode``, the files that it names by digest, and a note if unknown."""
    steps = job.record.calls
    libraries = [modules[step.module] for step in job.record.steps if isinstance(step, LibraryCall)]
    linked = cuda_libraries(libraries) if libraries else None
    if not steps:
        return linked, {}, ""
    from perfsvc.measure.worker.python_code import python_code

    names = [name for step in steps for name in step.bench_functions]
    packages = {step.package.package: None for step in steps if step.package}
    sources = {modules[step.source].decode(): None for step in steps if step.source is not None}
    try:
        python, files = python_code(job.bench, names, launched, packages=packages, sources=sources)
        if linked:
            every = {package.name: package for package in (*linked.packages, *python.packages)}
            python = replace(python, packages=tuple(every[name] for name in sorted(every)))
        return python, files, ""
    except Exception as error:  # noqa: BLE001 - the measurement is right without it
        traceback.print_exc()
        return None, {}, f"the packages and kernels of its Python code are unknown: {type(error).__name__}: {error}"


def _host_metrics(returned: Sequence[Any], from_buffers: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of a host variant, from the results of its Python functions and from its buffers."""
    from_functions = {
        str(name): value for result in returned if isinstance(result, Mapping) for name, value in result.items()
    }
    metrics = from_functions | dict(from_buffers)
    if not metrics or not all(_is_finite(value) for value in metrics.values()):
        raise LaunchError(
            f"a host variant returned no usable metrics: {metrics or 'nothing'}",
            cure="return a dict of finite numbers by metric name from one of its functions",
        )
    problem = next(filter(None, (problem_of_metric(name, {TIME, *AUXILIARY}) for name in from_functions)), "")
    if problem:
        raise LaunchError(f"a host variant returned an unusable metric: {problem}", cure="rename the metric")
    return {name: float(value) for name, value in metrics.items()}


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and math.isfinite(value)


def functions_of(job: CaseJob, modules: Sequence[bytes]) -> Functions:
    """Return the Python functions that the steps call, from the texts of the benchmark file and of modules."""
    steps = job.record.calls
    if not steps:
        return {}
    if job.python_modules:
        from perfsvc import suite  # reads benchmark files, which few cases need in a worker

        sys.meta_path.insert(0, suite.StoredModules(dict(job.python_modules)))
    return load_functions(steps, job.bench, modules)
