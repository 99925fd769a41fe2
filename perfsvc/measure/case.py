"""Measuring one case: load, check, sample, check again. Runs in the worker."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from perfsvc.device.protocol import Device
from perfsvc.errors import CaseError, LaunchError, SuiteError
from perfsvc.measure import beside, sampler
from perfsvc.measure.check import Check
from perfsvc.measure.job import Job, Measured
from perfsvc.measure.memory import Memory
from perfsvc.measure.outcome import without_samples
from perfsvc.measure.program import Function, Program
from perfsvc.measure.shared import Mapped
from perfsvc.measure.vault import Vault
from perfsvc.model import Call, Kind, Measurement, Status


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
        metrics = {**beside.registers(job.record, modules), **metrics}
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
