"""The worker: opens one device and measures the cases it is sent, until its parent hangs up."""

import gc
import math
import os
import socket
import time
import traceback
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from perfsvc.device import VISIBLE
from perfsvc.device.find import open_device
from perfsvc.device.protocol import Device
from perfsvc.errors import CaseError, LaunchError, PerfsvcError, SuiteError
from perfsvc.measure.protocol import messages
from perfsvc.measure.protocol.messages import Job, Measured, Open, Ready, Refused, Reply, Request, without_samples
from perfsvc.measure.protocol.shared_arrays import Mapped
from perfsvc.measure.worker.check import Check
from perfsvc.measure.worker.memory import Memory, Vault
from perfsvc.measure.worker.program import Function, Program
from perfsvc.measure.worker.sampling import auxiliary, sampler
from perfsvc.model import Call, Kind, Measurement, Status, codec

KEPT_SHARE = 0.25
"""Of a device's memory: inputs and references that its cases share."""


def prepare() -> None:
    """Makes what every worker needs, once for all of them."""
    codec.prepare(Request, Reply)


class Bench:
    """Where a worker measures: its open device, with what that keeps from case to case.

    A context manager, which closes the device.

    Args:
        device: an open device.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        # A device on the host's own processors copies as fast from the host.
        self._vault = Vault(device, int(KEPT_SHARE * device.info.memory_bytes) if device.queue_depth else 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.device.close()

    def measured(self, job: Job, modules: Sequence[bytes], descriptors: Sequence[int]) -> Measured:
        """Measures a case with arrays in the memory of some descriptors; a fault of ours costs its case as well."""
        try:
            return measure(self.device, job, modules, Mapped(descriptors, job), self._vault)
        except Exception as error:  # noqa: BLE001 - it is told
            traceback.print_exc()
            fault = LaunchError(
                f"perfsvc itself failed: {type(error).__name__}: {error}",
                cure="report it with the benchmark file; nothing else of the run is lost",
            )
            case, uuid = job.record.case, self.device.info.uuid
            return Measured(without_samples(case, uuid, job.replica, job.cache, fault), usable=False)


def serve(pool: socket.socket) -> int:
    """Opens the device that the first message names and measures until the pool hangs up; returns the exit status."""
    opening = messages.receive(pool)
    if opening is None:  # nobody needs it any more
        return 0
    try:
        device = _open(opening)
    except PerfsvcError as error:
        _say(pool, Refused(error.what, error.cure))
        return error.exit_code
    with Bench(device) as bench:
        gc.freeze()  # what lives as long as the worker need not be looked through before each case
        _say(pool, Ready(device.info))
        while (frame := messages.receive(pool)) is not None:
            reply = _measured(bench, frame)
            _say(pool, reply)
            if not reply.usable:
                break
            # What its Python functions kept goes with the case; a library that they imported stays, and need not be
            # looked through from now on before each case.
            gc.collect()
            gc.freeze()
    return 0


def _open(frame: messages.Frame) -> Device:
    request = codec.decode(Request, frame.text).body
    if not isinstance(request, Open):
        raise LaunchError("the worker was sent a job before it had a device", cure="report it: perfsvc itself failed")
    if request.visible:
        os.environ[VISIBLE] = request.visible  # the driver looks there when it starts, which it has not yet
    (helper_kernels,) = frame.blobs
    return open_device(request.device, helper_kernels)


def _measured(bench: Bench, frame: messages.Frame) -> Measured:
    try:
        job = codec.decode(Request, frame.text).body
        if not isinstance(job, Job):
            raise TypeError(type(job))
        return bench.measured(job, frame.blobs, frame.descriptors)
    finally:
        for descriptor in frame.descriptors:
            os.close(descriptor)


def _say(pool: socket.socket, body: Ready | Refused | Measured) -> None:
    messages.send(pool, codec.encode(Reply(body)))


def measure(device: Device, job: Job, modules: Sequence[bytes], arrays: Mapped, vault: Vault) -> Measured:
    """Measures one case; whatever goes wrong with it becomes its measurement.

    Args:
        device: an open device.
        job: what to measure.
        modules: the binaries of ``job.record.modules``.
        arrays: its inputs and references.
        vault: keeps them in the device's memory.
    """
    started = time.monotonic()
    case = job.record.case
    try:
        with (
            device.measuring(job.record, job.replica),
            Memory(device, job.record.buffers, make_room=vault.empty) as memory,
        ):
            program = Program(device, job.record, modules, memory, _functions(job))
            check = Check(device, job, arrays, vault, memory, program)
            measurement = _measure(device, job, modules, program=program, check=check, started=started)
            return Measured(measurement, usable=True, known=check.known)
    except (CaseError, SuiteError) as error:
        usable = not (isinstance(error, LaunchError) and error.fatal)
        measurement = without_samples(
            case, device.info.uuid, job.replica, job.cache, error, wall_s=time.monotonic() - started
        )
        return Measured(measurement, usable)


def _measure(
    device: Device, job: Job, modules: Sequence[bytes], *, program: Program, check: Check, started: float
) -> Measurement:
    returned = check.before()
    if job.record.kind is Kind.HOST:
        samples, sampling_s, metrics = sampler.NONE, 0.0, _metrics(returned, program.metrics())
    else:
        began = time.monotonic()
        samples = _sample(device, job, program)
        sampling_s = time.monotonic() - began
        metrics = {**samples.metrics, **program.metrics()}
        check.after(samples.median_s)
    if job.record.kind is Kind.KERNEL:  # what its binary tells beside a time
        metrics = {**auxiliary.registers(job.record, modules), **metrics}
    error = check.error
    return Measurement(
        job.record.case,
        device.info.uuid,
        job.replica,
        Status.OK,
        job.cache,
        samples_s=samples.seconds,
        max_error=error.max if error else None,
        mean_error=error.mean if error else None,
        metrics=metrics,
        stopped=samples.stopped,
        batches=samples.batches,
        warmup=samples.warmup,
        note=samples.note,
        check_s=check.seconds,
        sampling_s=sampling_s,
        busy_s=samples.busy_s,
        wall_s=time.monotonic() - started,
    )


def _sample(device: Device, job: Job, program: Program) -> sampler.Samples:
    if job.record.kind is Kind.PIPELINE:
        return sampler.take(
            device, program.sample, job.sampling, clock="host", cache=job.cache, operations=program.operations
        )
    return sampler.take(
        device, program.queue, job.sampling, clock="device", cache=job.cache, operations=program.operations
    )


def _metrics(returned: Sequence[Any], read: Mapping[str, float]) -> dict[str, float]:
    """What the Python functions of a host variant returned, merged, and what was read from its buffers."""
    own = {str(name): value for one in returned if isinstance(one, Mapping) for name, value in one.items()}
    metrics = own | dict(read)
    if not metrics or not all(_finite(value) for value in metrics.values()):
        raise LaunchError(
            f"a host variant returned no usable metrics: {metrics or 'nothing'}",
            cure="return a dict of finite numbers by metric name from one of its functions",
        )
    return {name: float(value) for name, value in metrics.items()}


def _finite(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and math.isfinite(value)


def _functions(job: Job) -> dict[str, Function]:
    names = [step.function for step in job.record.steps if isinstance(step, Call)]
    if not names:
        return {}
    from perfsvc import suite  # reads bench.py files, which few cases need in a worker

    return suite.functions(job.bench, names)
