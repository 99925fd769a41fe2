"""Measuring one case: load, check, sample, check again. Runs in the worker."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfsvc import suite
from perfsvc.device.protocol import Device
from perfsvc.errors import CaseError, LaunchError, SuiteError
from perfsvc.measure import sampler
from perfsvc.measure.check import require_right
from perfsvc.measure.job import Job, Measured
from perfsvc.measure.memory import Memory
from perfsvc.measure.outcome import without_samples
from perfsvc.measure.program import Function, Program
from perfsvc.model import Call, Error, Kind, Measurement, Mode, Status, Tolerance


def measure(
    device: Device,
    job: Job,
    modules: Sequence[bytes],
    inputs: Mapping[str, NDArray[Any]],
    expected: Mapping[str, NDArray[Any]],
) -> Measured:
    """Measures one case; whatever goes wrong with it becomes its measurement.

    Args:
        device: an open device.
        job: what to measure.
        modules: the binaries of ``job.record.modules``.
        inputs: host arrays by buffer name.
        expected: references by buffer name.
    """
    started = time.monotonic()
    case = job.record.case
    try:
        with (
            device.measuring(job.record, job.replica, expected),
            Memory(device, job.record.buffers, inputs) as memory,
        ):
            program = Program(device, job.record, modules, memory, _functions(job))
            measurement = _measure(device, job, program, memory, expected)
            return Measured(replace(measurement, wall_s=time.monotonic() - started), usable=True)
    except (CaseError, SuiteError) as error:
        usable = not (isinstance(error, LaunchError) and error.fatal)
        measurement = without_samples(
            case, device.info.uuid, job.replica, job.mode, error, wall_s=time.monotonic() - started
        )
        return Measured(measurement, usable)


def _measure(
    device: Device, job: Job, program: Program, memory: Memory, expected: Mapping[str, NDArray[Any]]
) -> Measurement:
    program.reset()
    returned = program.call()
    memory.require_intact_guards()
    if job.replica == 0:  # the same launches again would do the same again
        memory.require_intact_inputs()
    outputs = memory.outputs()
    error = require_right(outputs, expected, job.tolerance) if expected else None
    samples = sampler.Samples((), "a host variant returns its own metrics")
    metrics: dict[str, float] = {}
    if job.record.kind is Kind.HOST:
        metrics = _metrics(returned)
    else:
        samples = _sample(device, job, program)
        program.reset()
        program.run()
        memory.require_intact_guards()
        error = _worse(error, _recheck(memory.outputs(), outputs, expected, job.tolerance))
    return Measurement(
        case=job.record.case,
        device=device.info.uuid,
        replica=job.replica,
        mode=job.mode,
        status=Status.OK,
        samples_s=samples.seconds,
        stopped=samples.stopped,
        max_error=error.max if error else None,
        mean_error=error.mean if error else None,
        metrics=metrics,
    )


def _sample(device: Device, job: Job, program: Program) -> sampler.Samples:
    cold = job.mode is Mode.COLD
    if job.record.kind is Kind.PIPELINE:
        return sampler.take(device, program.run, job.sampling, clock="host", cold=cold)
    return sampler.take(device, program.queue, job.sampling, clock="device", cold=cold)


def _recheck(
    outputs: Mapping[str, NDArray[Any]],
    checked: Mapping[str, NDArray[Any]],
    expected: Mapping[str, NDArray[Any]],
    tolerance: Tolerance,
) -> Error | None:
    """The error after timing; None where every output is bit for bit what was found right before it."""
    same = all(np.array_equal(outputs[name].view(np.uint8), checked[name].view(np.uint8)) for name in expected)
    return None if same else require_right(outputs, expected, tolerance)


def _worse(before: Error | None, after: Error | None) -> Error | None:
    if before is None or after is None:
        return before or after
    return Error(max(before.max, after.max), max(before.mean, after.mean), after.worst)


def _metrics(returned: Sequence[Any]) -> dict[str, float]:
    """What the Python functions of a host variant returned, merged."""
    metrics = {str(name): value for one in returned if isinstance(one, Mapping) for name, value in one.items()}
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
    return {name: suite.function(job.bench, name) for name in names}
